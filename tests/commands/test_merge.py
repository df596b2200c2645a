"""Parts of one run become one results file; parts of two runs don't."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest
import records
import suites

from gpubench.commands.cli import main
from gpubench.runfile.reader import read

SUITE = """
import pytest, torch

@pytest.mark.parametrize("n", [8, 64])
def test_double(gpubench, n):
    gpubench(torch.mul, gpubench.randn(n), 2.0)
"""


@pytest.fixture
def merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Writes parts and merges them: the run that comes of it, or the complaint."""

    def merge(*parts: dict[str, Any], expected: int = 0) -> Any:
        names = [str(tmp_path / f"part{number}.json") for number, _ in enumerate(parts)]
        for name, part in zip(names, parts, strict=True):
            Path(name).write_text(json.dumps(part))
        assert main(["merge", *names, "-o", str(tmp_path / "whole.json")]) == expected
        shown = capsys.readouterr()
        whole = tmp_path / "whole.json"
        assert whole.exists() == (expected == 0)
        return shown.err if expected else read(whole)

    return merge


def mark(name: str, *medians: float, device: str = "cpu", **how: Any) -> dict[str, Any]:
    made = records.benchmark(records.case(name, device), medians[0], medians=medians, **how)
    made["fullname"] += f"-{device}"
    return made


def part(*marks: dict[str, Any], **how: Any) -> dict[str, Any]:
    return records.run_file(list(marks), **how)


def test_the_parts_of_a_real_run_are_read_as_one(tmp_path, monkeypatch, forking, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_parts.py").write_text(SUITE)
    run = ["run", "test_parts.py", "--preset", "smoke", "--no-ceilings", "--charts", "none"]
    assert main([*run, "--device", "cpu", "-o", "jobs/cpu"]) == 0
    assert main([*run, "--device", "demo", "-o", "jobs/demo"]) == 0
    assert main(["merge", "jobs", "-o", "whole.json"]) == 0
    assert "whole.json: 4 benchmarks of 2 parts, 0 not measured" in capsys.readouterr().out
    whole = read(Path("whole.json"))
    assert [device.name for device in whole.machine.devices] == ["cpu", "demo"]
    assert {result.times.processes[0].index for result in whole.results} == {0, 1}
    assert main(["report", "whole.json", "-o", "whole", "--charts", "none"]) == 0
    with open("whole/speedup.csv") as file:
        assert {row["n"] for row in csv.DictReader(file)} == {"8", "64"}
    assert main(["compare", "whole.json", "whole.json"]) == 0
    assert main(["merge", "whole.json", "jobs/demo", "-o", "more.json"]) == 2
    assert "both measured" in capsys.readouterr().err


def test_samples_keep_their_process_and_flags_what_they_apply_to(merge) -> None:
    first = part(mark("a.a", 1.0, 1.1), mark("a.b", 2.0, 2.1), processes=2)
    second = part(mark("a.c", 3.0, 3.1, flags=("noisy",)), processes=2, flags=("contended",))
    run = merge(first, second)
    indices = {result.workload: [each.index for each in result.times.processes] for result in run.results}
    assert indices == {"a.a": [0, 1], "a.b": [0, 1], "a.c": [2, 3]}
    assert [list(each) for each in run.results[2].times.samples] == [[3.0], [3.1]]
    assert run.processes == 4
    assert [(flag.name, flag.processes) for flag in run.flags] == [("contended", (2, 3))]
    assert [(flag.name, flag.processes) for flag in run.results[2].flags] == [("noisy", (2,))]


def test_devices_and_measured_peaks_are_joined(merge) -> None:
    slow, fast = records.ceilings("cpu"), records.ceilings("cpu")
    fast["throughput"]["float32"] *= 2
    slow["throughput"]["float64"] *= 3
    first = part(mark("a.a", 1.0), ceilings={"cpu": slow}, label="Synthetic CPU")
    gpu = mark("a.a", 1.0, device="cuda:0")
    devices = (records.CPU, records.GPU)
    peaks = {"cpu": fast, "cuda:0": records.ceilings("cuda:0")}
    run = merge(first, part(gpu, ceilings=peaks, devices=devices, label="Synthetic CPU · H-GPU"))
    assert run.machine.label == "Synthetic CPU · H-GPU"
    assert [device.name for device in run.machine.devices] == ["cpu", "cuda:0"]
    assert run.ceilings["cpu"].throughput["float32"] == fast["throughput"]["float32"]
    assert run.ceilings["cpu"].throughput["float64"] == slow["throughput"]["float64"]
    assert set(run.ceilings) == {"cpu", "cuda:0"}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("gpubench", "preset"), "full", "preset quick and full"),
        (("gpubench", "seed"), 3, "seed 0 and 3"),
        (("gpubench", "version"), "9.9", "gpubench 0.1.0 and 9.9"),
        (("commit_info", "id"), "b2", "commit a1 and b2"),
        (("machine_info", "gpubench", "threads"), 4, "threads 2 and 4"),
        (("machine_info", "gpubench", "torch", "version"), "2.12.0", "PyTorch 2.13.0+cpu and 2.12.0"),
        (("machine_info", "gpubench", "python"), "CPython 3.13.0", "Python CPython 3.11.7 and CPython 3.13.0"),
        (("machine_info", "gpubench", "label"), "ci-2", "machine (cpu) Synthetic CPU (synthetic) and ci-2"),
        (("machine_info", "gpubench", "devices", 0, "label"), "Other CPU", "cpu Synthetic CPU and Other CPU"),
        (("machine_info", "gpubench", "precision", "float32_matmul"), "high", "float32_matmul highest and high"),
        (("machine_info", "cpu", "brand_raw"), "Other CPU", "CPU Synthetic CPU and Other CPU"),
    ],
)
def test_parts_of_two_runs_are_refused_with_what_differs(merge, path, value, words) -> None:
    first = part(mark("a.a", 1.0))
    first["commit_info"]["id"] = "a1"
    first["machine_info"]["gpubench"]["python"] = "CPython 3.11.7"
    first["machine_info"]["gpubench"]["precision"]["float32_matmul"] = "highest"
    second = copy.deepcopy(first) | {"benchmarks": [mark("a.b", 1.0)]}
    place = second
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    complaint = merge(first, second, expected=2)
    assert (
        f"part0.json and {complaint.split(' and ')[1].split(' are ')[0]} are no parts of one run: {words}." in complaint
    )
    assert complaint.count("\n") == 1


def test_what_only_one_part_knows_is_no_difference(merge) -> None:
    first, second = part(mark("a.a", 1.0)), part(mark("a.b", 1.0), seed=None)
    second["machine_info"]["gpubench"]["threads"] = None
    second["machine_info"]["gpubench"]["python"] = [1]
    second["commit_info"] = [1]
    assert merge(first, second).seed == 0


def test_a_benchmark_that_two_parts_measured_is_refused(merge) -> None:
    assert "both measured a.a[float32-n=8]" in merge(
        part(mark("a.a", 1.0), mark("a.b", 1.0)), part(mark("a.a", 1.1)), expected=2
    )


def test_measured_in_one_part_counts_more_than_skipped_in_another(merge) -> None:
    def row(name: str, status: str, reason: str) -> dict[str, Any]:
        fullname = mark(name, 1.0)["fullname"]
        return records.unmeasured(records.case(name), status, reason) | {"fullname": fullname}

    first = part(mark("a.a", 1.0), unmeasured=[row("a.b", "skipped", "deselected"), row("a.c", "skipped", "no GPU")])
    rows = [row("a.c", "crashed", "killed"), row("a.a", "error", "why"), row("a.d", "skipped", "no GPU")]
    run = merge(first, part(mark("a.b", 2.0), unmeasured=rows))
    outcomes = {result.workload: (result.status, result.reason) for result in run.results}
    assert outcomes == {
        "a.a": ("ok", None), "a.b": ("ok", None), "a.c": ("crashed", "killed"), "a.d": ("skipped", "no GPU")
    }  # fmt: skip
    assert len(run.results) == 4


def test_the_run_lasts_from_the_first_part_to_the_last(merge, tmp_path) -> None:
    times = "2026-01-31T12:00:00+00:00", "2026-01-31T13:00:00+00:00"
    late, early = part(mark("a.a", 1.0), started=times[1]), part(mark("a.b", 1.0), started=times[0])
    late["gpubench"]["asked"] = {"devices": ["cpu"], "cache": "hot"}
    early["gpubench"]["asked"] = {"devices": ["cuda"], "cache": "cold"}
    merge(late, early)
    facts = json.loads((tmp_path / "whole.json").read_text())["gpubench"]
    assert (facts["started"], facts["finished"]) == times
    assert facts["asked"] == {"parts": [{"devices": ["cuda"], "cache": "cold"}, {"devices": ["cpu"], "cache": "hot"}]}


def test_plain_files_are_parts_too(merge, tmp_path) -> None:
    whole = suites.plain(suites.run_file())
    whole["benchmarks"][0]["params"] = {"x": float("nan")}
    parts = [whole | {"benchmarks": whole["benchmarks"][place]} for place in (slice(2), slice(2, None))]
    run = merge(*parts)
    assert run.plain
    assert [result.fullname for result in run.results] == [each["fullname"] for each in whole["benchmarks"]]
    (tmp_path / "whole.json").unlink()
    again = copy.deepcopy(parts[1])
    again["benchmarks"][0]["stats"]["median"] *= 1.1
    assert "both measured" in merge(*parts, again, expected=2)


def test_a_plain_part_joins_a_part_of_ours(merge, tmp_path) -> None:
    both = suites.run_file(), suites.plain(suites.run_file(names=("d.one",)))
    run = merge(*both)
    assert not run.plain
    assert len(run.results) == len(suites.NAMES) + 1
    elsewhere = copy.deepcopy(both[1])
    elsewhere["machine_info"]["cpu"]["brand_raw"] = "Other CPU"
    (tmp_path / "whole.json").unlink()
    assert "CPU Synthetic CPU and Other CPU" in merge(both[0], elsewhere, expected=2)


def test_what_can_t_be_merged_is_said_in_a_line(tmp_path, save, capsys) -> None:
    name = save("a.json", part(mark("a.a", 1.0)))
    save("b.json", part(mark("a.b", 1.0)))
    assert main(["merge", name, "-o", str(tmp_path / "c")]) == 2
    assert f"expected two parts or more, and {name} is the only results file" in capsys.readouterr().err
    assert main(["merge", str(tmp_path), "-o", name]) == 2
    assert f"{name}: exists already" in capsys.readouterr().err
    assert main(["merge", name, str(tmp_path / "gone.json"), "-o", str(tmp_path / "c")]) == 2
    assert "gone.json: no such file" in capsys.readouterr().err


def test_a_merged_file_needs_as_many_more_runs_as_one_measured_at_once(merge, save, tmp_path, capsys) -> None:
    """Each of its benchmarks has the processes of one part, and so has each that one more run would add."""

    def advice(*files: str) -> set[str]:
        assert main(["compare", *files, "--format=json"]) == 0
        cases = json.loads(capsys.readouterr().out)["cases"]
        assert [case["processes"] for case in cases] == [{"base": 3, "new": 3}] * 6
        return {case["advice"] for case in cases}

    def marks(late: float) -> list[dict[str, Any]]:
        return [mark(f"a.{letter}", 1.0, 1.1, 0.9 + late) for letter in "abcdef"]

    whole = [save(f"whole{late}.json", part(*marks(late), processes=3)) for late in (0.0, 0.01)]
    merged = []
    for number, late in enumerate((0.0, 0.01)):
        merge(part(*marks(late)[:3], processes=3), part(*marks(late)[3:], processes=3))
        merged.append(str((tmp_path / "whole.json").rename(tmp_path / f"merged{number}.json")))
    capsys.readouterr()
    (text,) = advice(*whole)
    assert " per side would detect a change of 5 %" in text
    assert advice(*merged) == {text}
