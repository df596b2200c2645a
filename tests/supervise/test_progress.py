"""The progress of a run, by scripted events."""

import io
import sys
from unittest.mock import Mock

import pytest

from gpubench.runfile.quantities import estimate_text
from gpubench.supervise import progress
from gpubench.supervise.progress import EVERY_S, FURTHER, LONGEST, Progress, whole_s

CASES = [f"case {i}" for i in range(40)]
CASE_S = 1.0


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


def session(process, **facts):
    return {"event": "session", "process": process, "cases": CASES, "estimated_s": CASE_S * len(CASES)} | facts


def end(process, status="ok", fullname="case 0", **facts):
    reason = "" if status == "ok" else status
    return {"event": "end", "process": process, "fullname": fullname, "status": status, "reason": reason} | facts


@pytest.fixture
def said(clock, capsys):
    """Lines since it was asked before."""
    return lambda: capsys.readouterr().err.splitlines()


def begin(processes=1, resume="", before=(), **facts):
    """The progress of a run after its first process has begun."""
    shown = Progress(resume=resume)
    shown.expect(processes, before)
    shown.note(session(0, **facts))
    return shown


def test_the_time_left_follows_the_pace_and_skipped_benchmarks_take_none(clock, said):
    shown = Progress()
    shown.expect(3, [])
    shown._bar.get_time = lambda: clock.now
    shown.note(session(0))
    assert "in 3 processes, about 1 min 32 s on idle cores." in said()[0]
    assert whole_s(CASE_S * len(CASES), 3) == 92.0
    for name in CASES[:10]:
        shown.note(end(0, "skipped", name))
    for number, name in enumerate(CASES[10:20], 1):
        clock.now += 3.0
        shown.note(end(0, fullname=name, benchmark=result("cpu", 1e-3)))
        left_s = 3.0 * (30 * (1 + 2 * FURTHER) - number)
        (line,) = said()
        assert line.endswith("0:01:32 left" if number == 1 else f"0:0{left_s // 60:.0f}:{left_s % 60:02.0f} left")
    shown.note(end(0, "skipped", CASES[20]))
    clock.now += 3.0
    shown.note(end(0, fullname=CASES[21], benchmark=result("cpu", 1e-3)))
    left_s = 3.0 * (29 * (1 + 2 * FURTHER) - 11)
    assert said()[-1].endswith(f"0:0{left_s // 60:.0f}:{left_s % 60:02.0f} left")


def test_the_devices_come_first_and_how_to_go_on(said):
    devices = [{"name": "cpu", "label": "A CPU"}, {"name": "cuda:0", "label": "A GPU"}]
    machine = {"gpubench": {"devices": devices, "threads": 2}}
    begin(3, "gpubench run --resume out", machine_info=machine, notices=["2 threads are slower than one here"])
    assert said() == [
        "2 threads are slower than one here",
        "Devices: CPU (A CPU, 2 threads), cuda:0 (A GPU). 40 benchmarks in 3 processes, about 1 min 32 s on idle "
        "cores. Ctrl-C is safe: gpubench run --resume out continues.",
    ]


def case(device):
    return {"id": "a.b[float32-n=8]", "device": device}


def result(device, median):
    return {"stats": {"median": median}, "extra_info": {"gpubench": case(device)}}


def test_each_finished_benchmark_is_a_line_and_a_skipped_one_is_none(said):
    shown = begin(2, cases=["gpu", "numpy", "mlx", "skipped", "other"])
    said()
    shown.note(end(0, fullname="gpu", benchmark=result("cuda:0", 1e-3)))
    shown.note(end(0, fullname="numpy", benchmark=result("cpu", 4e-3), library="NumPy"))
    shown.note(end(0, fullname="mlx", benchmark=result("cuda:0", 5e-4), library="MLX"))
    shown.note(end(0, "skipped", fullname="skipped", case={"device": "cpu"}))
    shown.note(end(0, "error", fullname="other", case={"device": "cpu"}))
    shown.note(end(0, "error", fullname="other", case={"device": "cpu"}))  # by a process that tried it again
    lines = [line.split("  ")[:-1] for line in said()]
    assert lines == [
        ["[1/5]", "a.b[float32-n=8]", "cuda:0 1.00 ms"], ["[2/5]", "a.b[float32-n=8]", "CPU NumPy 4.00 ms"],
        ["[3/5]", "a.b[float32-n=8]", "cuda:0 MLX 500 µs"], ["[5/5]", "other", "CPU error: error"],
    ]  # fmt: skip
    assert shown.why_not("skipped") == ["skipped: skipped: skipped"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environment", "controls"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_a_bar_is_drawn_by_events_alone_and_in_a_terminal_that_understands_it(monkeypatch, environment, controls):
    for name, value in ({"TERM": "xterm", "NO_COLOR": ""} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    threads = progress.threading.active_count()
    shown = begin(cases=["a", "b"])
    shown.note(end(0, fullname="a", benchmark=result("cpu", 1e-3)))
    assert progress.threading.active_count() == threads
    shown.stop()
    assert ("\x1b[" in terminal.getvalue(), "━" in terminal.getvalue()) == (controls, controls)
    assert "[1/2]  a.b[float32-n=8]  CPU 1.00 ms" in terminal.getvalue()


def test_a_line_on_a_long_benchmark_comes_only_while_it_runs(said, monkeypatch):
    timers = []
    monkeypatch.setattr(progress.threading, "Timer", lambda *given: timers.append(Mock(args=given)) or timers[-1])
    shown = Progress("gpubench time")
    shown.expect(1, [], deadline_s=60.0)
    for event in ({"event": "start", "name": "a"}, {"event": "end"}, {"event": "start", "name": "b"}):
        shown.watch(event)
    assert [timer.cancel.called for timer in timers] == [True, False]
    assert timers[1].args[2][0].startswith("gpubench time: still working on b (10 s). It stops by itself after 60 s")
    shown.stop()
    assert timers[1].cancel.called


def test_a_name_acts_on_no_terminal_and_is_cut(said):
    ident = f"\x1b[31ma\nb[{'x' * 2000}]"
    shown = begin(resume="\x1b[31mresume", cases=["a"])
    shown.note(end(0, fullname="a", benchmark=result("cpu", 1e-3) | {"extra_info": {"gpubench": {"id": ident}}}))
    opening, line = said()
    assert (opening + line).isprintable()
    assert len(line) < LONGEST + 50
    assert "x…x" in line
    assert "x]  1.00 ms" in line


def test_a_run_that_goes_on_says_once_how_much_is_done(said):
    before = [session(0), end(0, "skipped"), end(0, fullname="case 1", benchmark=result("cpu", 1e-3))]
    shown = begin(before=before, cases=CASES[2:])
    shown.note(end(0, "crashed", fullname="case 2"))
    shown.note(session(0) | {"cases": CASES[3:]})
    shown.note(end(0, fullname="case 3", benchmark=result("cpu", 1e-3)))
    opening, *lines = said()
    assert opening == "40 benchmarks, 2 of them done, about 43 s on idle cores."
    assert [line[:7] for line in lines] == ["[ 3/40]", "[ 4/40]"]


def test_repeats_are_a_line_now_and_then(clock, said):
    shown = begin(2)
    shown.note(end(0))
    shown.note(session(1))
    said()
    shown.note(end(1))
    assert said() == []
    clock.now += EVERY_S
    shown.note(end(1, fullname="case 1"))
    assert said()[0].startswith("process 2 of 2: 2 of 40, ")
    shown._bar.disable = False  # in a terminal, which has a bar instead
    clock.now += EVERY_S
    shown.note(end(1, fullname="case 2"))
    assert not [line for line in said() if "process" in line]


def test_an_estimate_has_two_digits():
    estimate = {2.73e-4: "270 µs", 0.0123: "12 ms", 0.7: "0.7 s", 13.6: "14 s", 99.4: "1 min 39 s", None: "—"}
    assert {s: estimate_text(s) for s in estimate} == estimate


def test_a_reason_names_its_benchmarks(clock):
    shown = begin()
    for i, reason in enumerate(["too large", "too large", "absent"]):
        shown.note(end(0, "skipped", fullname=f"case {i}") | {"reason": reason})
    shown.note(end(0, "error", fullname="case 3"))
    assert shown.why_not("skipped") == ["case 0 and 1 more: skipped: too large", "case 2: skipped: absent"]
    assert shown.why_not(most=1) == ["case 0 and 1 more: skipped: too large", "… and 2 other reasons"]
