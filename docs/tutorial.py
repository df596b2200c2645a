"""Runs the tutorial's notebook: ``python docs/tutorial.py``, on a machine that does nothing else.

The notebook is the only place where the tutorial is written; ``docs/regenerate.py`` makes its part of
docs/getting-started.md and its pictures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
NOTEBOOK, PICTURES = FOLDER / "tutorial.ipynb", FOLDER / "tutorial"
LONGEST_S = 170
_MAGIC = re.compile(r"%gpubench (.+)", re.DOTALL)
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
        if title := re.match(r"### \d\. (\w+)", cell.source):
            heading = title[1].lower()
        elif svg := output_of(cell, "image/svg+xml"):
            found[f"{heading}.svg"] = svg if svg.endswith("\n") else f"{svg}\n"
    return found


def page(notebook: Any) -> str:
    """The tutorial as a part of a page: the notebook's text, its magics as commands, their tables and the pictures."""
    parts, names = [], iter(pictures(notebook))
    cells = [cell for cell in notebook.cells if not cell.source.startswith("%load_ext")]
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif magic := _MAGIC.fullmatch(cell.source):
            parts.append(f"```sh\ngpubench time {magic[1]}\n```")
            parts.append(f"```text\n{_table(output_of(cell, 'text/plain'))}\n```")
            parts.append(f"![{_title(after)}](tutorial/{next(names)})")
    return "\n\n".join(parts) + "\n"


def _table(printed: str) -> str:
    """The table of what a command prints: machine and warnings stand before it, remarks after it."""
    blocks = [block.rstrip().splitlines() for block in printed.split("\n\n")]
    lines = blocks[1] if len(blocks) > 1 else blocks[0]
    return "\n".join(line.rstrip() for line in lines if not line.startswith(("~", "*", "±")))


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
