"""A report's folder is new, empty, or gpubench's with its own files replaced."""

from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.report import output
from gpubench.runfile.writer import Lock

SVG = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
    "<dc:creator><dc:title>gpubench</dc:title></dc:creator></metadata></svg>"
)
FIRST = {"summary.md": "one", "results.csv": "a,b", "charts/time-light.svg": SVG}


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != output.MANIFEST
    }


def test_a_later_report_replaces_its_files_and_removes_earlier_pictures(tmp_path):
    folder = tmp_path / "deep" / "out"
    output.write_folder(folder, FIRST)
    (folder / "charts/mine.svg").write_text("mine")
    (folder / "notes.md").write_text("mine")
    files = output.write_folder(folder, {"summary.md": "two \udcff", "report.html": "<p>"})
    assert files == [folder / "summary.md", folder / "report.html"]
    assert content(folder) == {
        "summary.md": b"two ?", "results.csv": b"a,b", "report.html": b"<p>", "charts/mine.svg": b"mine",
        "notes.md": b"mine",
    }  # fmt: skip


@pytest.mark.parametrize("mark", ["run.json", "run.ledger.jsonl", "run.log", output.MANIFEST, ".gitkeep"])
def test_a_folder_is_gpubench_s_by_its_results_its_journal_or_its_mark(tmp_path, mark):
    (tmp_path / mark).touch()
    output.write_folder(tmp_path, FIRST)
    assert content(tmp_path)["summary.md"] == b"one"


@pytest.mark.parametrize("name", ["summary.md", "notes.txt", "charts/time-light.svg"])
def test_a_folder_of_others_is_refused_and_stays_as_it_is(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="holds other files and no results of gpubench"):
        output.write_folder(tmp_path, FIRST)
    assert content(tmp_path) == {name: b"mine"}


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    folder = tmp_path / "out"
    output.write_folder(folder, FIRST)
    (tmp_path / "mine").write_text("mine")
    (folder / "summary.md").unlink()
    (folder / "summary.md").symlink_to("../mine")
    output.write_folder(folder, FIRST)
    assert content(tmp_path)["mine"] == b"mine"
    assert content(folder)["summary.md"] == b"one"
    (tmp_path / "else").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/charts").symlink_to(tmp_path / "else")
    with pytest.raises(UsageError, match="is a link"):
        output.write_folder(tmp_path / "other", FIRST)
    assert list((tmp_path / "else").iterdir()) == []


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


def test_a_report_waits_for_another_one_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_WAIT_S", 0.2)
    lock = Lock(tmp_path)
    with pytest.raises(UsageError, match="under way"):
        output.write_folder(tmp_path, FIRST)
    lock.release()
    output.write_folder(tmp_path, FIRST)


def test_a_report_without_several_devices_leaves_no_scaling_of_an_earlier_one(tmp_path):
    output.write_folder(tmp_path, FIRST | {"scaling.csv": "of another machine"})
    output.write_folder(tmp_path, FIRST)
    assert not (tmp_path / "scaling.csv").exists()
