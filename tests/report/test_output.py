"""A report's folder holds what the latest report wrote, and all that others put there."""

import json
import os
from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.report import output
from gpubench.runfile.writer import Lock

DRAWN = b"<?xml version='1.0'?><svg><dc:creator><cc:Agent><dc:title>gpubench</dc:title></cc:Agent></dc:creator></svg>"
FIRST = {"summary.md": "one", "results.csv": "a,b", "charts/time-light.svg": DRAWN}


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != output.MANIFEST
    }


def test_a_later_report_replaces_and_removes_what_an_earlier_one_wrote_and_nothing_else(tmp_path):
    folder = tmp_path / "deep" / "out"
    output.write_folder(folder, FIRST)
    (folder / "charts/mine.svg").write_text("mine")
    (folder / "notes.md").write_text("mine")
    files = output.write_folder(folder, {"summary.md": "two \udcff", "report.html": "<p>"})
    assert files == [folder / "summary.md", folder / "report.html"]
    assert content(folder) == {
        "summary.md": b"two ?", "report.html": b"<p>", "charts/mine.svg": b"mine", "notes.md": b"mine"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["summary.md", "charts/time-light.svg", output.MANIFEST])
@pytest.mark.parametrize("linked", [False, True])
def test_what_a_report_did_not_write_is_not_replaced(tmp_path, name, linked):
    folder, mine = tmp_path / "out", tmp_path / "mine"
    (folder / name).parent.mkdir(parents=True)
    mine.write_text('{"files": ["summary.md"]}' if linked else "mine")
    (folder / name).symlink_to(mine) if linked else mine.rename(folder / name)
    before = content(tmp_path)
    with pytest.raises(UsageError, match="was not written by gpubench"):
        output.write_folder(folder, FIRST)
    assert content(tmp_path) == before


def test_a_link_in_place_of_a_file_that_a_report_wrote_stays(tmp_path):
    folder = tmp_path / "out"
    output.write_folder(folder, FIRST)
    (folder / "summary.md").unlink()
    (folder / "summary.md").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"summary\.md"):
        output.write_folder(folder, FIRST)
    (tmp_path / "else").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/charts").symlink_to(tmp_path / "else")
    with pytest.raises(UsageError, match="is a link"):
        output.write_folder(tmp_path / "other", FIRST)
    assert list((tmp_path / "else").iterdir()) == []


@pytest.mark.parametrize("names", [["../run.json"], ["/etc/passwd"], ["charts/../../run.json"], ["run.json"],
                                   ["notes.md", "charts/mine.svg", 3], None, 3, "["])  # fmt: skip
def test_a_manifest_of_anybodys_removes_nothing_but_files_of_a_report(tmp_path, names):
    (tmp_path / "run.json").write_text("mine")
    folder = tmp_path / "out"
    output.write_folder(folder, FIRST)
    mine = ["run.json", "notes.md", "charts/mine.svg"]
    for name in mine:
        (folder / name).write_text(f"mine: {DRAWN.decode()}")
    manifest = folder / output.MANIFEST
    known = {"files": [*FIRST, *names] if isinstance(names, list) else names, "runs": names}
    manifest.write_text("[" * 100_000 if names == "[" else json.dumps(known))
    if isinstance(names, list):
        output.write_folder(folder, {"results.csv": ""})
        assert set(content(tmp_path)) == {"run.json", "out/results.csv", *(f"out/{name}" for name in mine)}
    else:
        with pytest.raises(UsageError, match="was not written by gpubench"):
            output.write_folder(folder, FIRST)


def test_a_report_that_was_killed_is_no_obstacle(tmp_path, monkeypatch):
    replace = output.replace

    def stop(path, content):
        if path.name == "results.csv":
            raise KeyboardInterrupt
        replace(path, content)

    monkeypatch.setattr(output, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        output.write_folder(tmp_path, FIRST)
    monkeypatch.undo()
    output.write_folder(tmp_path, FIRST)
    assert len(content(tmp_path)) == len(FIRST)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_manifest_is_a_plain_file(tmp_path, make):
    make(tmp_path / output.MANIFEST)
    with pytest.raises(UsageError, match="was not written by gpubench"):
        output.write_folder(tmp_path, FIRST)


def test_a_report_waits_for_another_one_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_WAIT_S", 0.2)
    lock = Lock(tmp_path)
    with pytest.raises(UsageError, match="under way"):
        output.write_folder(tmp_path, FIRST)
    lock.release()
    output.write_folder(tmp_path, FIRST)
