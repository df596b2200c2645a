"""A library reads the size from which a GPU is faster: on other hardware, and of a broken file, the default."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench.runfile import thresholds
from gpubench.runfile.thresholds import keep_threshold, threshold

CPU, GPU = "AMD EPYC 9354 32-Core Processor", "NVIDIA L4"


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, (GPU, "NVIDIA T4")))
    return tmp_path / "thresholds.json"


def test_what_was_measured_on_this_hardware(here, monkeypatch):
    assert keep_threshold(here, "rank", 470_000, gpubench="0.1.0") == f"{CPU} + {GPU}"
    assert threshold("rank", default=10**6, file=here) == 470_000
    keep_threshold(here, "rank", 480_000)
    keep_threshold(here, "other", 5)
    assert threshold("rank", default=10**6, file=here) == 480_000
    assert len(json.loads(here.read_text())["thresholds"]["rank"]) == 1
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, ("NVIDIA H100",)))
    keep_threshold(here, "rank", 90_000)  # of another GPU beside the same CPU
    assert [entry["size"] for entry in json.loads(here.read_text())["thresholds"]["rank"]] == [480_000, 90_000]


@pytest.mark.parametrize("other", [("AMD EPYC 7763", (GPU,)), (CPU, ("NVIDIA H100",)), (CPU, ()), ("", ())])
def test_other_hardware_has_the_default(here, monkeypatch, other, caplog):
    keep_threshold(here, "rank", 470_000)
    monkeypatch.setattr(thresholds, "hardware", lambda: other)
    with caplog.at_level(logging.INFO):
        assert threshold("rank", default=7, file=here) == 7
    assert "rank: nothing was measured on this CPU and GPU: the default holds" in caplog.text


@pytest.mark.parametrize("answer", ["never", "always", "unsure", -3, 0, True, None, float("inf"), float("nan")])
def test_what_is_no_size_has_the_default(here, answer):
    keep_threshold(here, "rank", answer)
    assert threshold("rank", default=7, file=here) == 7


WHOLE = json.dumps({"thresholds": {"rank": [{"cpu": CPU, "gpu": GPU, "size": 470_000}]}})


@pytest.mark.parametrize(
    "text",
    ["", WHOLE[:-4], "[]", "7", '{"thresholds": 7}', '{"thresholds": {"rank": 7}}', '{"thresholds": {"rank": [7]}}',
     '{"thresholds": {"rank": [{}]}}', "\x00\xff", "[" * 10**5, WHOLE + " " * thresholds.MOST_BYTES],
    ids=["empty", "torn", "list", "number", "no table", "no list", "no entry", "keyless", "binary", "deep", "huge"],
)  # fmt: skip
def test_broken_files_have_the_default(here, text):
    here.write_text(text)
    assert threshold("rank", default=7, file=here) == 7
    assert threshold("rank", default=7, file=here.parent) == threshold("rank", default=7, file=here / "none") == 7


def test_a_file_of_something_else_is_left_alone(here):
    here.write_text('{"name": "mine"}')
    with pytest.raises(ValueError, match="isn't a file of thresholds"):
        keep_threshold(here, "rank", 5)
    assert json.loads(here.read_text()) == {"name": "mine"}


def test_hardware_that_cant_be_recognised_is_not_written(here, monkeypatch):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, ()))
    with pytest.raises(ValueError, match="elsewhere the default holds"):
        keep_threshold(here, "rank", 5)
    assert not here.exists()


def test_the_names_of_the_system(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) @ 2.2GHz \nprocessor\t: 1\n")
    (tmp_path / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 88\n")
    assert thresholds._field(tmp_path / "cpuinfo", "model name") == "Intel(R) Xeon(R) @ 2.2GHz"
    assert thresholds._field(tmp_path / "information", "Model") == "NVIDIA H200"


READS = """
import sys, time
before = set(sys.modules)
import {module} as module
ours = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names) - {{"{top}"}}
print(ours, module.threshold("rank", 7, file="none.json"))
"""


@pytest.mark.parametrize("module", ["gpubench", "gpubench.runfile.thresholds", "copied"])
def test_it_needs_the_standard_library_alone_and_can_be_copied(tmp_path, module):
    (tmp_path / "copied.py").write_text(Path(thresholds.__file__).read_text())
    script = tmp_path / "script.py"
    script.write_text(READS.format(module=module, top=module.partition(".")[0]))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "set() 7\n"


def test_a_file_beside_the_calling_module_is_found(tmp_path):
    (tmp_path / "thresholds.json").write_text(WHOLE)
    (tmp_path / "library.py").write_text(
        "from gpubench.runfile import thresholds\n"
        f"thresholds.hardware = lambda: ({CPU!r}, ({GPU!r},))\n"
        "MIN_NODES = thresholds.threshold('rank', default=7)\n"
    )
    script = "import library; print(library.MIN_NODES)"
    known = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
    done = subprocess.run([sys.executable, "-c", script], cwd="/", env=known, capture_output=True, text=True)
    assert done.stdout == "470000\n", done.stderr
