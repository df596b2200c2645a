"""The tutorial: its notebook runs, a page and pictures are made from it, and its text has no number that isn't shown.

``python docs/tutorial.py`` runs it.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
ROOT = Path(__file__).resolve().parent.parent
specification = importlib.util.spec_from_file_location("tutorial", ROOT / "docs/tutorial.py")
tutorial = importlib.util.module_from_spec(specification)
specification.loader.exec_module(tutorial)
SIMULATED = re.compile("^WARNING: .*Simulated accelerator", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
SIZES = re.compile(r"(--size \w+=[^,\s]+,[^,\s]+)\S*")
"""The first two: the largest ones take the longest."""
FINDINGS = ("size", "copies", "precision", "allocation", "launch", "first")


@pytest.fixture(scope="module")
def notebook():
    return tutorial.read()


def cells_of_findings(notebook):
    """The cells of each finding, its heading first."""
    starts = [i for i, cell in enumerate(notebook.cells) if re.match("### ", cell.source)]
    parts = [notebook.cells[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(FINDINGS, parts, strict=False))


def require_six_findings(notebook):
    """Each is a heading, a command that gave times, a picture and a paragraph."""
    assert [f"{name}.svg" for name in FINDINGS] == list(tutorial.pictures(notebook))
    for name, cells in cells_of_findings(notebook).items():
        assert [cell.cell_type for cell in cells] == ["markdown", "code", "code", "markdown"], name
        printed = tutorial.output_of(cells[1], "text/plain")
        assert SIMULATED.search(printed), name
        assert re.search(r"\d [nµm]s", printed), printed
        assert not re.search(r"on (cpu|demo): (error|failed|skipped)", printed), printed
        assert "Simulated accelerator" in tutorial.output_of(cells[2], "image/svg+xml"), name


def test_what_is_kept_is_small_and_says_that_it_is_simulated(notebook):
    require_six_findings(notebook)
    pictures = [tutorial.output_of(cells[2], "image/svg+xml") for cells in cells_of_findings(notebook).values()]
    assert [
        name
        for name, picture in zip(FINDINGS, pictures, strict=True)
        if "come from a model, not from hardware" not in picture
    ] == []
    page = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^!\[.*simulated.*\]\(tutorial/", page, re.MULTILINE)) == len(FINDINGS)
    assert {path.name for path in tutorial.PICTURES.iterdir() if path.stat().st_size > 60_000} == set()
    assert tutorial.NOTEBOOK.stat().st_size < 500_000


def test_no_number_is_in_the_text_that_a_command_or_its_output_does_not_show(notebook):
    for name, (heading, command, picture, text) in cells_of_findings(notebook).items():
        outputs = tutorial.output_of(command, "text/plain"), tutorial.output_of(picture, "image/svg+xml")
        shown = set(NUMBER.findall(" ".join([command.source, *outputs])))
        assert set(NUMBER.findall(heading.source.partition(". ")[2] + text.source)) <= shown, name


def test_the_notebook_runs_from_top_to_bottom():
    notebook = tutorial.read()
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
            cell.source = re.sub(r"^%gpubench .*", r"\g<0> --preset smoke", cell.source, flags=re.DOTALL)
            cell.source = SIZES.sub(r"\1", cell.source)
    tutorial.run(notebook)
    require_six_findings(notebook)  # of its titles nothing is asked: on a busy machine times are drawn for speedups
    assert tutorial.page(notebook).count("```sh\ngpubench time ") == len(FINDINGS)
