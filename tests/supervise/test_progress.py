"""What a run shows while it measures: on a clock of our own."""

from unittest.mock import Mock

import pytest

from gpubench.supervise import progress
from gpubench.supervise.progress import (
    EVERY_S,
    FURTHER,
    LONGEST,
    START_S,
    Progress,
    TimeLeft,
    clock_text,
    estimate_text,
    whole_s,
)

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


@pytest.mark.parametrize("pace", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("start", [START_S, 12.0])
def test_what_is_left_follows_the_pace_seen(clock, pace, start):
    """Of cases that take ``pace`` times what was estimated, in processes that start as slowly as the first one,
    whatever its disk: right from the time a tenth of them is done. 3:49 were left of a run that took 1:03."""
    left = TimeLeft()
    left.expect(3, [])
    clock.now += start + 30.0  # and peaks, which the first process measures
    begin = clock.now
    left.note(session(0, start_cpu_s=start))
    assert left.estimated_s == 3 * start + 2 * len(CASES) == whole_s(CASE_S * len(CASES), 3) + 3 * (start - START_S)
    assert left.seconds() == pytest.approx(left.estimated_s - start)
    end_of_run = begin + 2 * start + 2 * len(CASES) * pace
    for process in range(3):
        if process:
            clock.now += start
            left.note(session(process, start_cpu_s=start))
        for _ in CASES:
            clock.now += CASE_S * (FURTHER if process else 1) * pace / 2
            left.note({"event": "start", "process": process, "fullname": "case 0"})
            clock.now += CASE_S * (FURTHER if process else 1) * pace / 2
            left.note(end(process))
            if left.done > 0.2 * len(CASES):
                assert left.seconds() == pytest.approx(end_of_run - clock.now)
    assert (left.done, left.seconds()) == (3 * len(CASES), pytest.approx(0))


def test_one_long_case_at_the_start_does_not_stand_for_all(clock):
    """15:48 were left after the first benchmark of a run of 11 minutes."""
    left = TimeLeft()
    left.expect(3, [])
    left.note(session(0, cases=[f"case {i}" for i in range(400)], estimated_s=400.0))
    before = left.seconds()
    clock.now += 15.0
    left.note(end(0))
    assert left.seconds() == pytest.approx(before, rel=0.05)


def test_a_skipped_case_is_no_pace_and_no_longer_to_come(clock):
    left = TimeLeft()
    left.expect(3, [])
    left.note(session(0))
    before = left.seconds()
    left.note(end(0, "skipped"))
    assert left.seconds() == pytest.approx(before - 2 * CASE_S)
    assert left.cases == 3 * len(CASES) - 2


def test_a_resumed_run_expects_what_is_left(clock):
    left = TimeLeft()
    left.expect(2, [session(0), end(0), end(0, "error")])
    assert left.cases == 2 * len(CASES) - 1 - 2
    assert left.seconds() == pytest.approx(whole_s(CASE_S * len(CASES), 2) - START_S - 1 - 1.5)


@pytest.fixture
def said(clock, capsys):
    """Lines since it was asked before."""
    return lambda: capsys.readouterr().err.splitlines()


def begin(processes=1, resume="", **facts):
    """What is shown of a run whose first process has begun."""
    shown = Progress(resume=resume)
    shown.expect(processes, [])
    shown.note(session(0, **facts))
    return shown


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


def test_each_finished_benchmark_is_a_line_with_all_its_devices(said):
    """Another library on the GPU is named and no speedup."""
    names = ["cpu", "gpu", "numpy", "mlx", "other"]
    shown = begin(2, cases=names, identities={name: case(name) for name in names[:4]})
    said()
    shown.note(end(0, fullname="gpu", benchmark=result("cuda:0", 1e-3)))
    shown.note(end(0, fullname="numpy", benchmark=result("cpu", 4e-3), library="NumPy"))
    shown.note(end(0, fullname="mlx", benchmark=result("cuda:0", 5e-4), library="MLX"))
    assert said() == []
    shown.note(end(0, fullname="cpu", benchmark=result("cpu", 2e-3)))
    (line,) = said()
    times = ["CPU 2.00 ms", "NumPy 4.00 ms", "cuda:0 1.00 ms", "cuda:0 MLX 500 µs"]
    assert line.split("  ")[:-1] == ["[1-4/5]", "a.b[float32-n=8]", *times]
    assert line.endswith(" left")
    shown.note(end(0, "error", fullname="other", case={"device": "cpu"}))
    assert said()[0].startswith("[5/5]  other  CPU error: error  ")


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
    name = f"\x1b[31ma\nb[{'x' * 2000}]"
    begin(resume="\x1b[31mresume", cases=[name]).note(end(0, fullname=name, benchmark=result("cpu", 1e-3)))
    opening, line = said()
    assert (opening + line).isprintable()
    assert len(line) < LONGEST + 50
    assert "x…x" in line
    assert "x]  CPU 1.00 ms" in line


def test_a_benchmark_that_is_skipped_everywhere_is_no_line(said):
    shown = begin(cases=["a", "b"])
    said()
    shown.note(end(0, "skipped", fullname="a", case={"device": "cpu"}))
    assert said() == []
    assert shown.why_not() == ["a: skipped: skipped"]
    shown.note(end(0, fullname="b", benchmark=result("cpu", 1e-3)))
    assert said()[0].startswith("[2/2, 1 skipped]  b  CPU 1.00 ms  ")


def test_numbers_are_consecutive_whatever_the_order_and_each_benchmark_has_one_line(said):
    names = [f"{device} {n}" for n in range(6) for device in ("cpu", "gpu")] + ["alone"]
    shown = begin(cases=names, identities={name: {"id": name.split()[1]} for name in names[:-1]})
    for name in names[::2] + names[1::2]:
        shown.note(end(0, fullname=name, benchmark=result("cuda:0" if "gpu" in name else "cpu", 1e-3)))
        shown.note(end(0, fullname=name, benchmark=result("cpu", 1e-3)))  # by a process that tried it again
    assert shown.left.done == len(names)
    places = [line.replace("[ ", "[").split()[0] for line in said()[1:]]
    assert places == ["[1/13]", *(f"[{first}-{first + 1}/13]" for first in range(2, 14, 2))]


def test_a_run_that_goes_on_says_once_what_is_done(said):
    shown = Progress()
    shown.expect(1, [session(0), end(0, "skipped"), end(0, fullname="case 1", benchmark=result("cpu", 1e-3))])
    shown.note(session(0) | {"cases": CASES[2:]})
    shown.note(end(0, "crashed", fullname="case 2"))
    shown.note(session(0) | {"cases": CASES[3:]})
    shown.note(end(0, fullname="case 3", benchmark=result("cpu", 1e-3)))
    opening, *lines = said()
    assert opening.startswith("40 benchmarks, 2 of them done, about 38")
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
    assert said()[0].startswith("process 2 of 2: 3 of 80 measurements, ")


def test_a_clock_has_whole_seconds_and_an_estimate_two_digits():
    clock = {0.4: "0:00", 59.6: "1:00", 392: "6:32", 3992: "1:06:32"}
    estimate = {2.73e-4: "270 µs", 0.0123: "12 ms", 0.7: "0.7 s", 13.6: "14 s", 99.4: "1 min 39 s", None: "—"}
    assert ({s: clock_text(s) for s in clock}, {s: estimate_text(s) for s in estimate}) == (clock, estimate)


def test_a_reason_names_its_benchmarks(clock):
    shown = begin()
    for i, reason in enumerate(["too large", "too large", "absent"]):
        shown.note(end(0, "skipped", fullname=f"case {i}") | {"reason": reason})
    shown.note(end(0, "error", fullname="case 3"))
    assert shown.why_not("skipped") == ["case 0 and 1 more: skipped: too large", "case 2: skipped: absent"]
    assert shown.why_not(most=1) == ["case 0 and 1 more: skipped: too large", "… and 2 other reasons"]
