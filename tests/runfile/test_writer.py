"""Run files are made to be published."""

import getpass
import json
import math
import socket
import tempfile

import pytest
import records

from gpubench.errors import RunFileError, UsageError
from gpubench.runfile import writer
from gpubench.runfile.ledger import assemble, read_ledger
from gpubench.runfile.writer import without_homes, without_paths, write


def test_homes_of_different_people_stay_different(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/alice")
    given = ["/srv/alice/x", "PosixPath('/home/bob/x')", r"C:\\Users\\carol\\x", "/home/bob", "a/home/b", "/root-x"]
    left = ["~/x", "PosixPath('~1/x')", r"~2\\x", "~1", "a/home/b", "/root-x"]
    assert without_homes({"/home/bob/key": given, "stats": given[:1]}) == {"~1/key": left, "stats": given[:1]}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("No such file: '/home/jane/secret project/x.py'", "No such file: 'x.py'"),
        ("'/a b/c' isn't '/d/e f/g h.py', /i/j", "'c' isn't 'g h.py', j"),
        ("can't open /home/jane/a.so: denied", "can't open a.so: denied"),
        (r"error in C:\Users\jane\b.py", "error in b.py"),
        ("17 FLOP at 3 GB/s and 1/2", "17 FLOP at 3 GB/s and 1/2"),
        ("benchmarks/test_x.py::test_y[a/b]", "benchmarks/test_x.py::test_y[a/b]"),
        ("gcc -I/opt/secret/include -DX=1", "gcc -Iinclude -DX=1"),
        ("no ~jane/code/a.py, ~1.5 GB", "no a.py, ~1.5 GB"),
        ("from https://jane:token@pypi.corp.example/simple?key=x failed", "from (url) failed"),
        ("see https://pytorch.org/docs/stable/notes/cuda.html", "see https://pytorch.org/docs/stable/notes/cuda.html"),
        ("https://pytorch.org@corp.example/x", "(url)"),
        ("connect to 10.1.2.3:29500 or fe80::1ff:fe23:4567:890a", "connect to (address):29500 or (address)"),
        ("busy with 3c:52:82:0a:1b:2c", "busy with (address)"),
        ("ask jane.doe@corp.example or jane@host:/srv/x", "ask (address) or (address):x"),
        ("listens on 127.0.0.1:29500", "listens on 127.0.0.1:29500"),
        ("at::_ops::add::call at 12:34:56, version 2.13.0", "at::_ops::add::call at 12:34:56, version 2.13.0"),
    ],
)
def test_paths_are_cut_down(text, left):
    assert without_paths(text) == left


def test_names_of_host_and_user_are_left_out(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "skynet-7")
    monkeypatch.setattr(getpass, "getuser", lambda: "jconnor")
    assert without_paths("jconnor@skynet-7 is down") == "(user)@(host) is down"


def test_scratch_that_a_killed_process_left_goes_and_a_living_ones_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (killed := tmp_path / "gpubench-list-killed").mkdir()
    (killed / ".made-by-gpubench").touch()
    with writer.scratch("gpubench-list-"):
        assert killed.exists()  # so young that its process may be about to lock it
    monkeypatch.setattr(writer, "_UNLOCKED_S", -1.0)
    others = {"gpubench-other", "gpubench-list-results"}
    for name in others:  # a user's own, whatever its name
        (tmp_path / name).mkdir()
    with writer.scratch("gpubench-list-") as living, writer.scratch("gpubench-list-") as second:
        assert {path.name for path in tmp_path.iterdir()} == {living.name, second.name, *others}
    assert {path.name for path in tmp_path.iterdir()} == others


CASES = """
import os, pytest, torch
@pytest.mark.parametrize("path", [os.path.expanduser("~/data/x.bin"), "/home/bob/x.bin", "/Users/carol/x.bin"])
def test_neg(gpubench, path): gpubench(torch.neg, gpubench.randn(8))
@pytest.mark.parametrize("path", [os.path.expanduser("~/data/x.bin")])
def test_missing(gpubench, path): raise ValueError
def test_open(gpubench): open("/no/such/folder/file")
"""


def test_a_run_file_does_not_say_where_it_was_made(pytester, monkeypatch):
    import platform

    monkeypatch.setattr(platform, "node", lambda: "skynet-7")
    pytester.makepyfile(test_it=CASES)
    monkeypatch.setenv("HOME", "/srv/alice")
    (pytester.path / ".git").mkdir()
    (pytester.path / ".git/HEAD").write_text("ref: refs/heads/alice/secret")
    for written in ("--benchmark-json=run.json", "--gpubench-ledger=run.ledger.jsonl"):
        pytester.runpytest_inprocess("--gpubench-preset=smoke", written)
    text = (pytester.path / "run.json").read_text()
    rows = [*json.loads(text)["benchmarks"], *json.loads(text)["gpubench"]["unmeasured"]]
    assert len({row["fullname"] for row in rows}) == len(rows) == 5
    journal = pytester.path / "run.ledger.jsonl"
    for content in (text, json.dumps(assemble(read_ledger(journal)))):
        assert not [name for name in ("alice", "bob", "carol", str(pytester.path)) if name in content]
    for content in (text, journal.read_text()):
        assert not [name for name in ("skynet-7", "/no/such/folder") if name in content]
    assert json.loads(text)["machine_info"]["node"] == json.loads(text)["commit_info"]["project"] == ""


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"a": [], "b": {}, "c": None},
        {"a": [[]], "b": [{}, [1, [2]], "a\nb\\"], "c": {"d": [{"e": []}, 1.5]}, "é": "é"},
        {"a": [{"name": "\ud800"}, {"name": "b\nc"}], "b": ["\udfff"]},  # half a character is written as its escape
        pytest.param(records.gpu_run(processes=2), id="run"),
    ],
)
def test_a_file_written_in_parts_is_the_whole_one_indented(tmp_path, data):
    write(tmp_path / "run.json", data)
    assert (tmp_path / "run.json").read_text("utf-8") == json.dumps(data, indent=1) + "\n"


def test_a_number_that_json_lacks_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "run.json"
    write(path, {"a": [1]})
    before = path.read_bytes()
    with pytest.raises(RunFileError, match=r"run\.json: run: expected finite numbers only"):
        write(path, {"a": [1, {"b": 2}, math.nan]})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_earlier_files_are_kept_under_a_number_that_is_free_for_all(tmp_path):
    paths = [tmp_path / name for name in ("run.json", "run.ledger.jsonl", "run.1.json")]
    for path in paths:
        path.touch()
    assert [new.name for _, new in writer.keep(paths[:2])] == ["run.2.json", "run.2.ledger.jsonl"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_an_output_file_is_new_or_a_picture_of_ours(tmp_path, suffix):
    """Not a drawing with a picture of ours in it, as an editor makes it."""
    from gpubench.report.charts import pictures
    from gpubench.report.study import Study

    writer.require_new(tmp_path / "new.csv")
    (figure, *_), _ = pictures.plan(Study([records.run().bench("a.b", cpu="1 ms").read("run")]))
    drawn = pictures.render(figure, suffix)
    (tmp_path / f"ours.{suffix}").write_bytes(drawn)
    writer.require_new(tmp_path / f"ours.{suffix}")
    inner = drawn[drawn.index(b"<svg") :] if suffix == "svg" else drawn
    (tmp_path / "theirs.svg").write_bytes(b'<?xml version="1.0"?><svg><g>' + inner + b"</g></svg>")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "link.csv").symlink_to("nowhere")
    for taken in (*("theirs.svg", "run.json", "link.csv", "no/a.csv", ""), "/dev/null"):
        with pytest.raises(UsageError):
            writer.require_new(tmp_path / taken)
