"""``gpubench profile`` as a process: the end of the script, refusals, files, and its options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpubench.commands import profile as command
from gpubench.commands.cli import main

LOOP = """
import os, subprocess, sys, torch
torch.set_num_threads(1)
subprocess.Popen(["sleep", "300"])
weight = torch.ones(4, requires_grad=True); optimizer = torch.optim.SGD([weight], 0.1)
try:
    while True:
        try: weight.square().sum().backward(); optimizer.step()
        except: continue
finally: open("best.pt", "w").write("overwritten")
"""


def profile(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``gpubench profile`` with these words."""
    line = [sys.executable, "-m", "gpubench", "profile", *map(str, words)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def test_script_is_ended_as_if_switched_off_and_nothing_is_left(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    done = profile("--steps", "6", "--json", "out.json", "-o", "out.svg", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"runs train.py in {tmp_path} until its steps are measured" in done.stderr
    assert not (tmp_path / "best.pt").exists()
    lines = done.stdout.splitlines()
    assert lines[1].startswith("train.py: ")
    assert len(lines) <= 26
    assert max(map(len, lines)) <= 80
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["step"]["mark"] == "SGD"
    assert content["step"]["n"] == 6
    assert len(content["gpus"]) == 4
    assert sum(content["parts"].values()) == pytest.approx(content["step"]["mean_s"], rel=1e-9)
    assert (tmp_path / "out.svg").read_bytes().startswith(b"<?xml")
    sleeping = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert "sleep 300" not in sleeping


def test_script_that_never_imports_torch_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv)\n")
    done = profile("train.py", "--steps", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == "['train.py', '--steps', '3']\n"
    assert "train.py: never imports torch" in done.stderr


def test_script_that_fails_keeps_its_code_and_its_traceback(tmp_path):
    (tmp_path / "train.py").write_text("def f():\n    raise ValueError('mine')\nf()\n")
    done = profile("train.py", cwd=tmp_path)
    assert done.returncode == 1
    bare = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bare.stderr in done.stderr
    assert "failed before it was measured" in done.stderr


def test_script_that_needs_cuda_is_refused_in_words(tmp_path):
    text = "def f():\n    raise AssertionError('Torch not compiled with CUDA enabled')\nf()\n"
    (tmp_path / "train.py").write_text(text)
    done = profile("train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs CUDA at train.py:2, and there is none here: .to(device) instead of .cuda()" in done.stderr


def test_module_runs_as_with_python_m(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__main__.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:], sys.path[0])\n")
    done = profile("-m", "mine", "a", cwd=tmp_path)
    bare = subprocess.run(
        [sys.executable, "-m", "mine", "a"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == bare.stdout != ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a script"),
        (["torchrun", "a.py"], "give the script itself"),
        (["missing.py"], "missing.py: no such file"),
        (["--gpu", "H9000", "a.py"], "unknown GPU"),
        (["-o", "step.jpg", "a.py"], "a picture's name ends in"),
        (["-o", "no/step.svg", "a.py"], "no/step.svg: no such folder"),
        (["--json", ".", "a.py"], ".: is a folder"),
    ],
)
def test_unusable_words_end_with_2(words, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("")
    assert main(["profile", *words]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("option", [["--steps", "0"], ["--runs", "x"], ["--step", "0"]])
def test_numbers_of_options_are_checked(option, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["profile", *option, "a.py"])
    assert "a whole number from" in capfd.readouterr().err


def test_several_runs_give_the_interval_of_their_means(monkeypatch):
    def measured(_args, means=iter((1.1, 0.9))):  # noqa: B008
        return 0, one(next(means))

    def one(mean_s):
        step = command.Profile("a.py")
        step.step = __import__("gpubench.profiling.profile", fromlist="Step").Step("", "call", 6, mean_s, 0.9, 1.2)
        return step

    monkeypatch.setattr(command, "_measured", measured)
    args = type("Args", (), {"runs": 3, "device": None})
    several = command._repeated(args, one(1.0))
    assert several.runs == 3
    assert several.step.low_s < 0.9 < 1.1 < several.step.high_s


def test_a_process_that_ignores_signals_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "FAREWELL_S", 0.3)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w'); time.sleep(300)"
    code = f"import os, subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {deaf!r}])\n"
    code += "while not os.path.exists('ready'): time.sleep(0.01)\nos._exit(5)"
    monkeypatch.chdir(tmp_path)
    assert command._run([sys.executable, "-c", code], {}) == 5
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert deaf not in left


def test_a_command_that_is_ended_ends_its_script(tmp_path):
    code = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '301']); open('ready', 'w'); time.sleep(300)"
    (tmp_path / "train.py").write_text(code)
    line = [sys.executable, "-m", "gpubench", "profile", "train.py"]
    with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL) as command:
        while not (tmp_path / "ready").exists():
            assert command.poll() is None
        command.terminate()
        assert command.wait(60) == 128 + 15
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert "sleep 301" not in left


def test_run_names_profile_for_a_file_without_tests(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit('executed')\n")
    assert main(["run", "train.py"]) == 2
    assert "train.py has no benchmarks: gpubench profile train.py" in capfd.readouterr().err
    assert not os.path.exists("out")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_script_ends_with_a_command_that_is_killed(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nopen('begun', 'w').close()\ntime.sleep(60)\n"
    )
    started = subprocess.Popen([sys.executable, "-m", "gpubench", "profile", "train.py"], cwd=tmp_path)
    while not (tmp_path / "begun").exists() and started.poll() is None:
        time.sleep(0.05)
    script = psutil.Process(int((tmp_path / "pid").read_text()))
    started.kill()
    started.wait()
    script.wait(30)
