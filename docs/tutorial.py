"""Runs the tutorial's notebook, and writes the page and the pictures that are made from it.

    python docs/tutorial.py           run docs/tutorial.ipynb, then write docs/tutorial.md and docs/tutorial/
    python docs/tutorial.py --page    write them from the notebook as it is

The notebook is the only place where the text is written. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
NOTEBOOK, PAGE, PICTURES = FOLDER / "tutorial.ipynb", FOLDER / "tutorial.md", FOLDER / "tutorial"
LONGEST_S = 170
_MAGIC = re.compile(r"%gpubench (.+)", re.DOTALL)
_CHART = re.compile(r"_\.chart\((?:\"([\w-]+)\")?\)")
_KEPT = ("image/svg+xml", "text/html", "text/plain")


def read() -> Any:
    """The notebook."""
    return nbformat.read(NOTEBOOK, as_version=4)


def run(notebook: Any) -> None:
    """Run all cells in a new kernel; raises nbclient's CellExecutionError for one that fails."""
    NotebookClient(
        notebook, timeout=LONGEST_S, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    ).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place}", {}
        for output in cell.get("outputs", ()):
            output["metadata"] = {}
            output["data"] = {kind: text for kind, text in output.get("data", {}).items() if kind in _KEPT}


def output_of(cell: Any, kind: str) -> str:
    """What a cell shows, of one kind; empty where it shows none."""
    return "".join(output.get("data", {}).get(kind, "") for output in cell.get("outputs", ()))


def pictures(notebook: Any) -> dict[str, str]:
    """The pictures by the names of their files: each is named for the first word of its finding."""
    found, heading = {}, ""
    for cell in notebook.cells:
        if title := re.match(r"## \d\. (\w+)", cell.source):
            heading = title[1].lower()
        elif svg := output_of(cell, "image/svg+xml"):
            found[f"{heading}.svg"] = svg if svg.endswith("\n") else f"{svg}\n"
    return found


def page(notebook: Any) -> str:
    """docs/tutorial.md: the notebook's text, its magics as commands, what they print and the pictures."""
    parts, names = [], iter(pictures(notebook))
    cells = [cell for cell in notebook.cells if not cell.source.startswith("%load_ext")]
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif magic := _MAGIC.fullmatch(cell.source):
            name = next(names)
            kind = chart[1] if after and (chart := _CHART.fullmatch(after.source)) else None
            drawn = f"--chart {name}" + f" --kind {kind}" * bool(kind)
            parts.append(f"```sh\ngpubench time {magic[1]} \\\n    {drawn}\n```")
            printed = "\n".join(line.rstrip() for line in output_of(cell, "text/plain").splitlines())
            parts.append(f"```text\n{printed}\n```")
            parts.append(f"![{_title(after)}](tutorial/{name})")
    return "\n\n".join([_MADE, *parts]) + "\n"


_MADE = "<!-- Made from tutorial.ipynb by docs/tutorial.py: don't edit it here. -->"


def _title(cell: Any) -> str:
    """The title of the picture that a cell shows."""
    return output_of(cell, "text/plain").removeprefix("<Picture: ").removesuffix(">")


def main() -> None:
    """Run the notebook; ``tox run -e regenerate`` writes what is made from it."""
    notebook = read()
    run(notebook)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
