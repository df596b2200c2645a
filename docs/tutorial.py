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
_HEADING = re.compile(r"### \d\. (\w+)")
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
        if title := _HEADING.match(cell.source):
            heading = title[1].lower()
        elif svg := output_of(cell, "image/svg+xml"):
            found[f"{heading}.svg"] = svg if svg.endswith("\n") else f"{svg}\n"
    return found


def page(notebook: Any) -> str:
    """The tutorial as a part of a page: the notebook's text, its magics as commands, their tables and the pictures."""
    parts, names, heading = [], iter(pictures(notebook)), ""
    cells = [cell for cell in notebook.cells if "%load_ext" not in cell.source]
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        if title := _HEADING.match(cell.source):
            heading = title[1].lower()
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif magic := _MAGIC.fullmatch(cell.source):
            parts.append(f"```sh\ngpubench time {magic[1]}\n```")
            parts.append(f"```text\n{_shown(output_of(cell, 'text/plain'), heading)}\n```")
            parts.append(f"![{_title(after)}](tutorial/{next(names)})")
    return "\n\n".join(parts) + "\n"


def _shown(printed: str, heading: str) -> str:
    """The table of what a command prints, and a remark on the first call where that is the finding."""
    blocks = [block.splitlines() for block in printed.split("\n\n")]
    table = [line for line in blocks[min(1, len(blocks) - 1)] if not line.startswith(("~", "*", "±"))]
    remarks = [line for line in printed.splitlines() if f"the {heading} call took" in line]
    return "\n".join(line.rstrip() for line in table + remarks)


def _title(cell: Any) -> str:
    """The title of the picture that a cell shows, which is simulated."""
    title = output_of(cell, "text/plain").removeprefix("<Picture: ").removesuffix(">")
    return title if "simulated" in title else f"{title} (simulated)"


def main() -> None:
    """Run the notebook; ``tox run -e regenerate`` writes what is made from it."""
    notebook = read()
    run(notebook)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
