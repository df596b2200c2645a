"""Scripts of many shapes run as they run bare, and their steps are found."""

from __future__ import annotations

import json
from pathlib import Path

import forked
import pytest
from profiling.scripts import MARKS, PLAN, REFUSED, SCRIPTS

LOST = "", "the network is compiled", "the script trains in another thread"
FORKS = (
    "import os, runpy, sys, multiprocessing as each; each.set_start_method('fork', force=True); sys.path.insert(0, '');"
)
BARE = FORKS + "sys.argv[:] = {!r}; runpy.run_path(os.path.abspath(sys.argv[0]), None, '__main__')"
WATCHED = FORKS + "from gpubench.profiling.script import main; sys.exit(main([{!r}]))"


def run(name, folder: Path, **session):
    """Run a script bare, or with a session watched; return its output, its exit code and its files."""
    folder.mkdir()
    (folder / f"{name}.py").write_text(SCRIPTS[name])
    words = [f"{name}.py", *(["--lr", "0.2"] if name == "everyday" else [])]
    result = folder.parent / f"{folder.name}.json"
    if session:
        session = {"result": str(result), "words": words, **PLAN, **session}
        done = forked._printed("-c", [WATCHED.format(json.dumps(session))], folder, {"KINETO_LOG_LEVEL": "9"})
    else:
        done = forked._printed("-c", [BARE.format(words)], folder, {})
    profile = json.loads(result.read_text()) if result.exists() else None
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    return done.stdout.replace(str(folder), ""), done.returncode, files, profile


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_as_it_does_bare(name, tmp_path):
    bare = run(name, tmp_path / "bare")
    watched = run(name, tmp_path / "watched", to_the_end=True)
    if name != "fails":  # whose traceback names the process that ran it
        assert watched[0] == bare[0]
    assert watched[1:3] == bare[1:3]
    profile = watched[3]
    if name in REFUSED:
        assert REFUSED[name] in profile["refusal"]
        return
    assert profile["step"]["mark"] == MARKS[name] or profile["step"]["rank"] == MARKS[name]
    assert profile["lost"].keys() <= {"launches"}
    assert profile["lost"].get("launches", "") in LOST
    assert profile["launches"] > 0
    assert sum(profile["parts"].values()) == pytest.approx(profile["step"]["mean_s"], rel=1e-9)
    if name in ("loader_for_each_epoch", "evaluation_between", "sgd"):
        assert (profile["step"]["batches"], len(profile["loaders"])) == (pytest.approx(1.0, abs=0.4), 1)
    if name == "two_workers":  # Adam reads its own steps, which wait on a CPU alone
        assert profile["waits"] == []
