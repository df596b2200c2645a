"""Rules of every command: foreign names don't act on a terminal, and a refusal is one line."""

import contextlib
import json
import os
import shlex
import subprocess
import sys

import pytest
import records
from inprocess import gpubench
from sources import negating
from suites import run_file

from gpubench.commands.cli import main

NAME = "\x1b[31mred\x07\u202e\n\u2028x"


@pytest.fixture
def odd(tmp_path):
    """A results file in a folder with a name of control characters."""
    folder = tmp_path / NAME
    folder.mkdir()
    path = folder / "run.json"
    path.write_text(json.dumps(records.cpu_run()))
    return path


def typed(words, **places):
    """The words of a command, with values for its capitals."""
    arguments = words.split()
    for key, value in places.items():
        arguments = [word.replace(key, str(value)) for word in arguments]
    return arguments


@pytest.mark.parametrize(
    "words",
    ["show GONE", "report GONE -o out", "run --resume FOLDER", "run GONE", "show RUN --ODD", "ODD",
     "compare RUN RUN", "chart RUN --kind time -o FOLDER/a.svg", "report RUN -o FOLDER/out --charts none"],
)  # fmt: skip
def test_a_name_acts_on_no_terminal(odd, words, capsys):
    with contextlib.suppress(SystemExit):  # of an option that isn't known
        main(typed(words, GONE=f"{odd}.gone", FOLDER=odd.parent, RUN=odd, ODD=NAME))
    printed = "".join(capsys.readouterr())
    assert "red" in printed
    assert printed.translate({ord("\n"): "", ord("\u2003"): ""}).isprintable()  # which indents a row's other dtypes


REFUSED = [
    ("rnu", "unknown command 'rnu': did you mean run?"),
    ("frobnicate", "unknown command 'frobnicate': choose from run, "),
    ("run --devise=cpu", "unrecognized arguments: --devise=cpu: did you mean --device?"),
    ("run --deadline=0", "deadline must be seconds above 0, not '0'"),
    ("run --deadline=nan", "deadline must be seconds above 0, not 'nan'"),
    ("run --resume ''", "--resume needs the folder of a run"),
    ("run nowhere.py", "nowhere.py: no such file or folder"),
    ("run test_mine.py --device=gpu", "unknown device 'gpu': choose from auto, all, cpu, cuda"),
    ("run test_mine.py --require-device=xpu", "xpu:0 is not available: "),
    ("run test_mine.py --device=cpu --device=xpu", "xpu:0 is not available: "),
    ("run test_mine.py --threads=100000", "threads must be at most"),
    ("run test_mine.py -k nothing", "no benchmark matches 'nothing': choose from mine.neg"),
    ("run test_mine.py -k nothing --list", "gpubench run: no benchmark matches 'nothing': choose from mine.neg"),
    ("run test_mine.py -k 'matmul and and'", "-k 'matmul and and': expected a word"),
    ("run test_mine.py -o test_mine.py", "can't write there"),
    ("run test_mine.py -o /proc/out", "can't write there"),
    ("run test_mine.py -o ''", "-o needs the name of a folder"),
    ("run test_mine.py -- --no-such-option", "unrecognized arguments"),
    ("compare run.json", "the following arguments are required: NEW"),
    ("compare run.json run.json third", "unrecognized arguments: third"),
    ("compare run.json run.json --threshold 5", "write 5% or 0.05"),
    ("compare run.json run.json --format xml", "invalid choice"),
    ("compare run.json run.json --allow seed", "invalid choice"),
    *(
        (f"compare run.json run.json {word} 9", "for --interleave")
        for word in ("--paths", "-o", "--budget", "--pairs", "--seed")
    ),
    ("compare run.json run.json -k x", "no benchmark matches 'x': choose from a.fast, a.slow"),
    ("compare run.json empty.json", "empty.json: benchmarks: expected a benchmark, found none"),
    ("compare --interleave PYTHON PYTHON --pairs 2", "--pairs must be 6 or more"),
    ("compare --interleave PYTHON PYTHON --allow machine", "--allow is for results files"),
    ("compare --interleave /bin/false PYTHON -k none", "base: /bin/false can't measure"),
    ("compare --interleave PYTHON PYTHON --paths test_mine.py -k no_such_case", "base: "),
    *((words, "out: no such file or folder: gpubench run -o out makes one") for words in (
        "estimate", "report", "show", "chart -o a.svg")),
    ("time 'torch.ones(n)' --size n=64 128", "arguments: 128: --size takes one word: write --size n=64,128"),
    ("time 'torch.ones(3)' --gpu=RTX 4090", "4090: --gpu takes one word: write --gpu 'RTX 4090', or --gpu RTX --gpu"),
    ("time 'torch.ones(n)' --device cpu cuda", "cuda: --device takes one word: write"),
    ("time --device cpu", "required: EXPRESSION: write it first, in quotes: gpubench time 'a @ b'"),
    ("estimate out", "out: no such file or folder: gpubench run -o out makes one"),
    ("estimate run.json --gpu A100 L4", "L4: --gpu takes one word: write --gpu 'A100 L4', or --gpu A100 --gpu L4"),
    ("estimate run.json --gpu 'H100 NVL'", "did you mean H100 SXM or"),
    ("estimate run.json --gpu L4 -k nowhere", "no benchmark matches"),
    *((f"{words} LONG", "File name too long") for words in (
        "show", "run", "run -o", "compare run.json", "report run.json -o")),
    ("chart run.json --kind headline -o LONG.svg", "File name too long"),
    ("show gone.json --format csv", "gone.json: no such file or folder"),
    ("show run.json --format excel", "invalid choice: 'excel'"),
    ("show run.json -- x", "-- and what follows it is for gpubench run"),
    ("chart run.json -o no/where.svg", "no/where.svg: no such folder"),
    ("chart run.json -o loop/a.svg", "no such folder"),
    ("report run.json -o out --baseline tpu", "unknown baseline 'tpu': choose from cpu, torch, "),
    ("report run.json -o out --allow everything", "(choose from 'dtype', 'precision', "),
    ("report run.json -o out --charts some", "default"),
    ("report run.json -o other.txt", "can't write there"),
    ("time 'torch.ones(3)' --device=cuda:7", "cuda:7 is not available"),
    ("time 'torch.ones(3)' --device=cuba", "unknown device 'cuba'"),
    ("time 'torch.ones(3)' -o no/such/r.json", "no/such/r.json: no such folder"),
    ("time 'torch.ones(3)' -o other.txt", "other.txt: exists already"),
    ("time 'torch.ones(3)' -o pipe", "pipe: exists already"),
    ("time 'torch.ones(3)' --chart c.pdf", "c.pdf: a picture's name ends in .svg or .png"),
    ("time 'torch.ones(3)' --processes=0", "processes must be 1 or more, not 0"),
]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_cant_be_done_is_refused_in_a_line(tmp_path, no_ceilings, words, says):
    (tmp_path / "test_mine.py").write_text(negating(8))
    (tmp_path / "other.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name, data in (("run.json", run_file()), ("empty.json", records.run_file([]))):
        (tmp_path / name).write_text(json.dumps(data))
    done = gpubench(*shlex.split(words.replace("PYTHON", sys.executable).replace("LONG", "x" * 5000)), cwd=tmp_path)
    *first, line = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert says in line
    assert line.startswith("gpubench")
    assert [each for each in first if "starting: " not in each] == []
    assert (tmp_path / "other.txt").read_text() == "mine"


@pytest.mark.parametrize("words", ["compare RUN RUN", "report RUN -o OUT"])
def test_neither_torch_nor_a_terminal_beyond_ascii_is_needed(tmp_path, odd, words):
    code = (
        "import sys; sys.modules['torch'] = None\nfrom gpubench.commands import cli\nsys.exit(cli.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-W", "error::UserWarning", "-c", code, *typed(words, RUN=odd, OUT=tmp_path / "out")]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
