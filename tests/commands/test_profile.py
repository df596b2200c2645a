"""``gpubench profile`` as a process: the end of the script, refusals, files, and its options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from gpubench.commands import profile as command
from gpubench.commands.cli import main
from gpubench.commands.run import _has_tests
from gpubench.profiling.profile import PARTS, Profile, Step

LOOP = """
import os, subprocess, sys, torch
torch.set_num_threads(1)
subprocess.Popen(["sleep", "300"])
if os.path.isdir("/dev/shm"): open(f"/dev/shm/torch_{os.getpid()}_1_0", "w").close()
class Log:  # as many scripts have one, which also writes a file
    def __init__(self): self.terminal = sys.stdout
    def write(self, text): self.terminal.write(text)
    def flush(self): pass
sys.stdout = Log(); print(os.getpid())
weight = torch.ones(4, requires_grad=True); optimizer = torch.optim.SGD([weight], 0.1)
try:
    while True:
        try: weight.square().sum().backward(); optimizer.step()
        except: continue
finally: open("best.pt", "w").write("overwritten")
"""


def run(line: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(line, cwd=cwd, check=False, **how)


def profile(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``gpubench profile`` with these words."""
    return run([sys.executable, "-m", "gpubench", "profile", *map(str, words)], cwd)


def running() -> str:
    """The command lines of all processes."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout


def test_script_is_ended_as_if_switched_off_and_nothing_is_left(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    done = profile("--steps", "6", "--json", "out.json", "-o", "out.svg", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"runs train.py in {tmp_path} until its steps are measured" in done.stderr
    assert not (tmp_path / "best.pt").exists()
    lines = done.stdout.splitlines()
    assert not [*Path("/dev/shm").glob(f"torch_{lines[0]}_*")]
    assert lines[2].startswith("train.py: ")
    assert len(lines) <= 27
    assert max(map(len, lines)) <= 80
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["step"]["mark"] == "SGD"
    assert content["step"]["n"] == 6
    assert len(content["gpus"]) == 4
    assert sum(content["parts"].values()) == pytest.approx(content["step"]["mean_s"], rel=1e-9)
    assert (tmp_path / "out.svg").read_bytes().startswith(b"<?xml")
    assert "sleep 300" not in running()


MODULE = "import sys\nprint(__name__, __package__, sys.argv[1:], sys.path[0])\n"


@pytest.mark.parametrize(
    ("words", "text", "code", "said"),
    [
        (["train.py", "--", "--steps", "3"], "import sys\nprint(sys.argv)\n", 2, "train.py: never imports torch"),
        (["train.py"], "def f():\n    raise ValueError('mine')\nf()\n", 1, "failed before it was measured"),
        (["train.py"], "def f():\n    raise AssertionError('Torch not compiled with CUDA enabled')\nf()\n", 2,
         "needs CUDA at train.py:2, and there is none here: .to(device) instead of .cuda()"),
        (["-m", "mine", "a"], MODULE, 2, "never imports torch"),
        (["train.py"], "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n", 2,
         "ended itself before it was measured: words for it stand behind its name, as in gpubench profile train.py"),
        (["train.py"], "def f():\n    return input()\nf()\n", 2, "asks for input at train.py:2, and there is none"),
        (["train.py"], "def f(:\n", 1, "failed before it was measured"),
        (["train.py"], "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", 137, "killed by SIGKILL"),
    ],
)  # fmt: skip
def test_script_is_refused_in_words_and_prints_as_without_gpubench(words, text, code, said, tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("train.py", "mine/__main__.py"):
        (tmp_path / name).write_text(text)
    done = profile(*words, cwd=tmp_path)
    bare = run([sys.executable, *words], tmp_path)
    assert (done.returncode, done.stdout) == (code, bare.stdout)
    assert bare.stderr in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a script"),
        (["torchrun", "a.py"], "give the script itself"),
        (["missing.py"], "missing.py: no such file"),
        (["--gpu", "H9000", "a.py"], "unknown GPU"),
        (["-o", "step.jpg", "a.py"], "a picture's name ends in"),
        (["-o", "no/step.svg", "a.py"], "no/step.svg: no such folder"),
        (["--json", "a.py", "a.py"], "a.py: exists already"),
        (["."], ".: is a folder"),
        (["python3.11", "a.py"], "leave out python: gpubench profile SCRIPT"),
        (["a.ipynb"], "a notebook is no script: gpubench.profile(step)"),
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
    assert "must be" in capfd.readouterr().err


def test_several_runs_give_the_one_in_the_middle_and_the_interval_of_their_means(monkeypatch):
    runs = (Profile("a.py", step=Step("", "call", 6, mean_s, 0.9, 1.2)) for mean_s in (1.1, 1.0, 0.9))
    monkeypatch.setattr(command, "_measured", lambda _: (0, next(runs)))
    several = command._repeated(SimpleNamespace(runs=3, device=None), next(runs))
    assert (several.runs, several.step.mean_s) == (3, 1.0)
    assert several.step.low_s < 0.9 < 1.1 < several.step.high_s


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """The environments that scripts got, which end measured, with code 3, on a GPU unless that is hidden."""
    environments = []

    def run(words, environment):
        environments.append(environment)
        made = Profile("a.py", device="cpu" if environment else "cuda", gpu="L4", parts=dict.fromkeys(PARTS, 0.25))
        made.step = Step("", "call", 6, 1.0 if environment else 0.5, 0.4, 1.1)
        Path(json.loads(words[-1])["result"]).write_bytes(msgspec.json.encode(made))
        return 3

    monkeypatch.setattr(command, "_run", run)
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("")
    return environments


@pytest.mark.parametrize(
    ("option", "code", "environments"),
    [(["--to-the-end"], 3, [{}, command.HIDDEN]), (["--device", "cpu"], 0, [command.HIDDEN])],
)
def test_exit_code_of_a_measured_script_that_runs_without_the_gpu_too(option, code, environments, ended):
    assert main(["profile", *option, "--json", "out.json", "a.py"]) == code
    assert ended == environments
    measured = json.loads(Path("out.json").read_text())["measured"]
    assert measured == ({"L4": [0.4, 0.5, 1.1]} if len(ended) > 1 else {})


def test_a_process_that_ignores_signals_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "FAREWELL_S", 0.3)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w'); time.sleep(300)"
    code = f"import os, subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {deaf!r}])\n"
    code += "while not os.path.exists('ready'): time.sleep(0.01)\nos._exit(5)"
    monkeypatch.chdir(tmp_path)
    assert command._run([sys.executable, "-c", code], {}) == 5
    assert deaf not in running()


def test_a_command_that_is_ended_ends_its_script(tmp_path):
    code = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '301']); open('ready', 'w'); time.sleep(300)"
    (tmp_path / "train.py").write_text(code)
    line = [sys.executable, "-m", "gpubench", "profile", "train.py"]
    with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL) as command:
        while not (tmp_path / "ready").exists():
            assert command.poll() is None
        command.terminate()
        assert command.wait(60) == 128 + 15
    assert "sleep 301" not in running()


def test_run_names_profile_for_a_file_without_tests(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("raise SystemExit('executed')\n")
    assert main(["run", "train.py"]) == 2
    assert "train.py has no benchmarks: gpubench profile train.py" in capfd.readouterr().err
    assert not os.path.exists("out")
    Path("train_test.py").write_text("raise SystemExit('executed')\n")
    assert _has_tests(Path("train_test.py"))  # pytest collects it by its name


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
