"""Reading and writing run files: what is accepted, and what is refused in one line that names the place."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.errors import RunFileError, UsageError
from gpubench.runfile import reader, writer
from gpubench.runfile.schema import Bandwidth, Case, Ceilings, Transfer, Work


def one_case(**changes: Any) -> dict[str, Any]:
    case = Case("matmul.square", "cuda:0", "float32", {"n": 64}, threads=2, size="n", devices=("cuda:0",))
    work = {"flops": 524288.0}
    mark = records.benchmark(case, 2e-5, work=work, medians=(1.9e-5, 2.1e-5))
    return records.run_file([mark], devices=(records.CPU, records.GPU), processes=2) | changes


def save(folder: Path, data: Any) -> Path:
    path = folder / "run.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


APART, EVEN = (1.0, 2.0, 32.0), (1.9, 2.0, 2.1)


def test_a_time_of_several_processes_is_the_mean_of_their_medians(tmp_path: Path) -> None:
    """A process is one observation: a slow one counts once, however few rounds it made."""
    case = Case("a.b", "cpu", "float32")
    data = [records.run_file([records.benchmark(case, 2.0, medians=each)], processes=3) for each in (APART, EVEN)]
    result, even = (reader.read(save(tmp_path, each)).results[0] for each in data)
    assert result.times.median_s == pytest.approx(4.0)
    assert result.times.q1_s <= result.times.median_s <= result.times.q3_s
    (flag,) = result.flags
    assert (flag.name, flag.seen) == ("noisy", "the slowest process took 32 times the fastest")
    assert flag.processes == (0, 1, 2)
    assert even.flags == ()


def test_everything_is_read(tmp_path: Path) -> None:
    data = one_case()
    left = Case("matmul.square", "cpu", "float16", {"n": 8192}, size="n")
    data["gpubench"]["unmeasured"] = [records.unmeasured(left, "skipped", "too slow")]
    run = reader.read(save(tmp_path, data))
    assert (run.plain, run.processes, run.date, run.preset) == (False, 2, "2026-01-31", "quick")
    assert run.machine.device("cuda:0").label == "Synthetic H-GPU"
    assert run.machine.device("npu:3") == reader.DeviceFacts("npu:3", "npu", "")
    assert (run.machine.torch, run.machine.tf32, run.machine.threads) == ("2.13.0+cpu", False, 2)
    measured, unmeasured = run.results
    assert measured.work == Work(flops=524288.0)
    assert measured.case.id == "matmul.square[float32-n=64]"
    assert measured.times is not None
    assert measured.times.median_s == pytest.approx((1.9e-5 * 2.1e-5) ** 0.5)
    assert [process.median_s for process in measured.times.processes] == [1.9e-5, 2.1e-5]
    assert [list(kept) for kept in measured.times.samples] == [[1.9e-5], [2.1e-5]]
    assert (unmeasured.times, unmeasured.status, unmeasured.reason) == (None, "skipped", "too slow")


MEASURED: dict[str, Any] = {
    "device_s": 1.5e-5,
    "launch_s": 2e-6,
    "transfer": {"in_bytes": 32768, "out_bytes": 16384, "in_s": 1e-5, "out_s": 2e-5, "in_pinned_s": 5e-6},
    "memory_bytes": 98304,
    "energy_j": 0.004,
    "precision": {"tf32": True, "float32_matmul": "high"},
    "cache": "cold",
}
CEILINGS: dict[str, Any] = {
    "bandwidth": [{"pattern": "copy", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 4e12}],
    "throughput": {"float32": 5e13},
    "launch_floor_s": 2e-6,
    "host_to_device_byte_per_s": 5e10,
    "device_to_host_byte_per_s": None,
}


def measured_case() -> dict[str, Any]:
    """With all that can be known of a case, and of what its device can do."""
    data = one_case()
    ours(data).update(copy.deepcopy(MEASURED))
    ours(data)["processes"][1]["flags"] = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    data["gpubench"]["ceilings"] = {"cuda:0": copy.deepcopy(CEILINGS)}
    data["gpubench"]["processes"][0]["flags"] = [{"flag": "contended", "seen": "load 3.1 on 2 cores"}]
    data["gpubench"]["processes"][1]["flags"] = [{"flag": "contended", "seen": "load 5.0 on 2 cores"}]
    data["gpubench"]["processes"][0]["canary"] = {"threads": 2, "one_s": 2e-4, "all_s": 1e-4}
    data["gpubench"]["processes"][1]["canary"] = {"threads": 2, "one_s": 2e-4, "all_s": 7e-3}
    return data


def test_all_that_was_measured_is_read(tmp_path: Path) -> None:
    run = reader.read(save(tmp_path, measured_case()))
    (result,) = run.results
    assert (result.device_s, result.launch_s, result.memory_bytes, result.energy_j) == (1.5e-5, 2e-6, 98304, 0.004)
    assert result.transfer == Transfer(32768, 16384, 1e-5, 2e-5, 5e-6, None)
    assert (result.precision, result.case.cache) == ({"tf32": True, "float32_matmul": "high"}, "cold")
    assert result.flags == (reader.Raised("noisy", "IQR 40 % of the median", (1,)),)
    assert run.flags == (reader.Raised("contended", "load 3.1 on 2 cores", (0, 1)),)
    assert run.slow_threads == (1,)
    assert run.seed == 0
    bandwidth = (Bandwidth("copy", 1e9, 4e12, "memory"),)
    assert run.ceilings == {"cuda:0": Ceilings(bandwidth, {"float32": 5e13}, 2e-6, 5e10, None)}


def test_what_was_not_measured_is_none(tmp_path: Path) -> None:
    run = reader.read(save(tmp_path, one_case()))
    (result,) = run.results
    assert (result.device_s, result.launch_s, result.transfer, result.energy_j, result.flags) == (None,) * 4 + ((),)
    assert (run.ceilings, run.flags, run.slow_threads) == ({}, (), ())


def test_a_flag_of_tomorrow_is_not_passed_on(tmp_path: Path) -> None:
    data = measured_case()
    ours(data)["processes"][0]["flags"] = [{"flag": "haunted", "seen": "a ghost"}]
    assert [flag.name for flag in reader.read(save(tmp_path, data)).results[0].flags] == ["noisy"]


def test_tf32_state(tmp_path: Path) -> None:
    data = one_case()
    precision = data["machine_info"]["gpubench"]["precision"]
    for keys, expected in (({}, None), ({"tf32": False}, False), ({"tf32": True}, True)):
        precision.clear()
        precision.update(keys)
        assert reader.read(save(tmp_path, data)).machine.tf32 is expected


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    data = one_case(tomorrow={"x": [float(7)]})
    data["benchmarks"][0]["extra_info"]["gpubench"]["tomorrow"] = 1
    assert len(reader.read(save(tmp_path, data)).results) == 1


def test_plain_file(tmp_path: Path) -> None:
    data = one_case()
    del data["gpubench"]
    del data["machine_info"]["gpubench"]
    mark = data["benchmarks"][0]
    mark |= {
        "extra_info": {},
        "fullname": "a/b/test_sorting.py::TestFast::test_sort[x-1]",
        "params": {"n": 1, "shape": [1, 2], "odd": float("nan")},
        "options": {"timer": "perf_counter"},
    }
    run = reader.read(save(tmp_path, data))
    (result,) = run.results
    assert run.plain
    assert run.machine.label == "Synthetic CPU"
    assert result.case == Case(
        "sorting.TestFast.sort",
        "",
        "",
        {"n": 1, "shape": "[1, 2]", "odd": "nan"},
        implementation="",
        variant="",
        regime="",
        cache="",
    )
    assert result.work == Work()
    assert result.times is not None
    assert len(result.times.processes) == 1


DEVICES = {name: f"UNSERIALIZABLE[device(type='{kind}')]" for name, kind in (("a", "cpu"), ("b", "mps"))}


@pytest.mark.parametrize(
    ("fullname", "params", "name", "device", "dtype"),
    [
        ("a/h2d_test.py::test_f", {}, "h2d.f", "", ""),
        ("test_a.py::test_f[cuda-1]", {"device": "cuda", "n": 1}, "a.f[n=1]", "cuda:0", ""),
        ("test_a.py::test_f[x0]", {"x": "UNSERIALIZABLE[device(type='cuda', index=1)]"}, "a.f", "cuda:1", ""),
        ("test_a.py::test_f[cpu-cuda]", {"src": "cpu", "dst": "cuda"}, "a.f[src=cpu-dst=cuda]", "", ""),
        ("test_a.py::test_f[d0-d1]", DEVICES,
         "a.f[a=d0-b=d1]", "", ""),
        ("test_a.py::test_f[dtype0]", {"dtype": "UNSERIALIZABLE[torch.bfloat16]"}, "a.f[bfloat16]", "", "bfloat16"),
        ("test_a.py::test_f[fn0-3]", {"fn": "UNSERIALIZABLE[<function f at 0x7f>]", "n": 3}, "a.f[fn=fn0-n=3]", "", ""),
        ("test_a.py::test_f[a-b-3]", {"fn": "UNSERIALIZABLE[<a>]", "n": 3}, "a.f[n=3-id=a-b-3]", "", ""),
        ("test_a.py::test_f[xs0]", {"xs": list(range(900))}, "a.f[xs=xs0]", "", ""),
    ],
)  # fmt: skip
def test_a_plain_benchmarks_parameters_say_its_device_and_dtype_and_are_readable(fullname, params, name, device, dtype):
    case = reader.plain_case(fullname, params)
    assert (case.id, case.device, case.dtype) == (name, device, dtype)


def test_parameters_that_all_cases_share_are_left_out() -> None:
    given = {
        f"test_a.py::test_f[{d}-{n}-x]": reader.plain_case("test_a.py::test_f", {"device": d, "n": n, "mode": "x"})
        for d in ("cpu", "mps")
        for n in (1, 2)
    }
    single = {"test_a.py::test_g[3]": reader.plain_case("test_a.py::test_g", {"n": 3})}
    cases = reader.without_shared(given | single)
    assert {case.id for case in cases.values()} == {"a.f[n=1]", "a.f[n=2]", "a.g[n=3]"}


def test_no_two_plain_benchmarks_are_called_alike(tmp_path: Path) -> None:
    data = one_case()
    del data["gpubench"]
    (mark,) = data["benchmarks"]
    names = {"a/test_x.py::test_f[1]": 1, "a/test_x.py::test_f[one]": "1", "b/test_x.py::test_f[1]": 1}
    data["benchmarks"] = [
        copy.deepcopy(mark) | {"extra_info": {}, "fullname": name, "params": {"n": value}, "options": {"timer": "time"}}
        for name, value in names.items()
    ]
    labels = [result.case.id for result in reader.read(save(tmp_path, data)).results]
    assert labels == ["a/x.f[n=1-id=1]", "a/x.f[n=1-id=one]", "b/x.f[n=1]"]


def test_a_plain_benchmark_among_ours(tmp_path: Path) -> None:
    data = one_case()
    other = copy.deepcopy(data["benchmarks"][0]) | {"extra_info": {}, "fullname": "test_a.py::test_b", "params": None}
    data["benchmarks"].append(other)
    run = reader.read(save(tmp_path, data))
    assert [result.case.workload for result in run.results] == ["matmul.square", "a.b"]


def test_the_host_name_is_nobodys_business(tmp_path: Path) -> None:
    assert "not-to-be-shown" not in repr(reader.read(save(tmp_path, one_case())))


Edit = Callable[[dict[str, Any]], Any]


def stats(data: dict[str, Any]) -> dict[str, Any]:
    return data["benchmarks"][0]["stats"]  # type: ignore[no-any-return]


def ours(data: dict[str, Any]) -> dict[str, Any]:
    return data["benchmarks"][0]["extra_info"]["gpubench"]  # type: ignore[no-any-return]


def ceilings(data: dict[str, Any]) -> dict[str, Any]:
    return data["gpubench"]["ceilings"]["cuda:0"]  # type: ignore[no-any-return]


ABOVE_0 = "expected a finite number of at least 1e-15"
BAD: dict[str, tuple[Edit, str]] = {
    "version": (lambda d: d["gpubench"].update(schema_version=2), "gpubench.schema_version: expected 1, found 2"),
    "no version": (lambda d: d.pop("gpubench"), "gpubench.schema_version: expected 1, found nothing"),
    "true is no version": (lambda d: d["gpubench"].update(schema_version=True), "schema_version: expected 1"),
    "nan": (lambda d: stats(d).update(median=float("nan")), "benchmarks[0].stats.median: expected a finite number"),
    "infinity": (lambda d: stats(d).update(mean=float("inf")), "benchmarks[0].stats.mean: expected a finite number"),
    "negative": (lambda d: stats(d).update(min=-1.0), "benchmarks[0].stats.min: expected a finite number of at least"),
    "zero": (
        lambda d: stats(d).update(median=0),
        f"benchmarks[0].stats.median: {ABOVE_0}",
    ),
    "huge": (lambda d: stats(d).update(median=10**400), "benchmarks[0].stats.median: expected a finite number"),
    "text": (lambda d: stats(d).update(iqr="1"), "benchmarks[0].stats.iqr: expected a number, found '1'"),
    "bool": (lambda d: stats(d).update(median=True), "benchmarks[0].stats.median: expected a number, found True"),
    "missing": (lambda d: stats(d).pop("median"), "benchmarks[0].stats.median: expected a number, found nothing"),
    "rounds": (lambda d: stats(d).update(rounds=1.5), "benchmarks[0].stats.rounds: expected a whole number, found 1.5"),
    "sample": (lambda d: stats(d)["data"].__setitem__(1, -1), "benchmarks[0].stats.data[1]: expected a finite number"),
    "samples of nobody": (lambda d: stats(d)["data"].append(1.0), "stats.data: expected 2 samples"),
    "twice the process": (lambda d: ours(d)["processes"][1].update(process=0), "expected each process once"),
    "timer": (
        lambda d: d["benchmarks"][0]["options"].update(timer="perf_counter"),
        "benchmarks[0].options.timer: expected a timer that waits for cuda:0 (device_clock, timer, replay), "
        "found 'perf_counter'",
    ),
    "timer of a case on several": (
        lambda d: (ours(d).update(device="cpu"), d["benchmarks"][0]["options"].clear()),
        "benchmarks[0].options.timer: expected a timer that waits for cuda:0",
    ),
    "params": (lambda d: ours(d)["params"].update(n=[1]), "benchmarks[0].extra_info.gpubench.params.n: expected"),
    "work": (
        lambda d: ours(d)["work"].update(flops=0),
        f"extra_info.gpubench.work.flops: {ABOVE_0}",
    ),
    "workload": (lambda d: ours(d).update(workload=3), "extra_info.gpubench.workload: expected a text, found 3"),
    "devices": (lambda d: ours(d).update(devices="cuda:0"), "extra_info.gpubench.devices: expected a list"),
    "status": (
        lambda d: d["gpubench"]["unmeasured"].append({"workload": "a", "device": "cpu", "status": "ok"}),
        "gpubench.unmeasured[0].status: expected one of skipped, oom, error, timeout, crashed",
    ),
    "date": (lambda d: d["gpubench"].update(started="../../x"), "gpubench.started: expected an ISO 8601 date"),
    "benchmarks": (lambda d: d.update(benchmarks={}), "benchmarks: expected a list, found {}"),
    "null": (lambda d: d.update(benchmarks=None), "benchmarks: expected a list, found nothing"),
    "machine": (lambda d: d.update(machine_info=[]), "machine_info: expected an object, found []"),
    "tf32": (lambda d: d["machine_info"]["gpubench"]["precision"].update(tf32="no"), "tf32: expected true, false"),
    "negative device time": (lambda d: ours(d).update(device_s=-1e-6), "gpubench.device_s: expected a finite number"),
    "no launch cost": (
        lambda d: ours(d).update(launch_s=0),
        f"gpubench.launch_s: {ABOVE_0}",
    ),
    "text as energy": (lambda d: ours(d).update(energy_j="1"), "gpubench.energy_j: expected a number, found '1'"),
    "negative memory": (lambda d: ours(d).update(memory_bytes=-1), "gpubench.memory_bytes: expected a finite number"),
    "negative error": (lambda d: ours(d)["check"].update(error=-0.1), "gpubench.check.error: expected a finite number"),
    "transfer": (lambda d: ours(d).update(transfer=[1]), "gpubench.transfer: expected an object, found [1]"),
    "transfer of nothing": (
        lambda d: ours(d).update(transfer={}),
        "transfer.in_bytes: expected a whole number, found nothing",
    ),
    "transfer in no time": (
        lambda d: ours(d)["transfer"].update(in_s=0),
        f"transfer.in_s: {ABOVE_0}",
    ),
    "transfer of half a byte": (lambda d: ours(d)["transfer"].update(out_bytes=0.5), "out_bytes: expected a whole"),
    "cache": (
        lambda d: ours(d).update(cache="lukewarm"),
        "gpubench.cache: expected one of hot, cold, found 'lukewarm'",
    ),
    "precision": (lambda d: ours(d).update(precision="tf32"), "gpubench.precision: expected an object, found 'tf32'"),
    "deep precision": (lambda d: ours(d)["precision"].update(tf32=[1]), "gpubench.precision.tf32: expected a text"),
    "many switches": (
        lambda d: ours(d).update(precision={str(i): i for i in range(65)}),
        "gpubench.precision: expected at most 64 entries, found 65",
    ),
    "flags": (lambda d: ours(d)["processes"][0].update(flags={"a": 1}), "processes[0].flags: expected a list"),
    "flag": (lambda d: ours(d)["processes"][0].update(flags=["noisy"]), "flags[0]: expected an object, found 'noisy'"),
    "nameless flag": (lambda d: ours(d)["processes"][0].update(flags=[{}]), "flags[0].flag: expected a text"),
    "many flags": (
        lambda d: d["gpubench"]["processes"][0].update(flags=[{"flag": "noisy", "seen": ""}] * 33),
        "gpubench.processes[0].flags: expected at most 32 entries, found 33",
    ),
    "seed": (lambda d: d["gpubench"].update(seed=-1), "gpubench.seed: expected a whole number of at least 0, found -1"),
    "ceilings": (lambda d: d["gpubench"].update(ceilings=[1]), "gpubench.ceilings: expected an object, found [1]"),
    "ceilings of many devices": (
        lambda d: d["gpubench"].update(ceilings={str(i): {} for i in range(257)}),
        "gpubench.ceilings: expected at most 256 entries, found 257",
    ),
    "bandwidth": (
        lambda d: ceilings(d)["bandwidth"][0].update(byte_per_s=-4e12),
        "gpubench.ceilings.cuda:0.bandwidth[0].byte_per_s: expected a finite number of at least",
    ),
    "bandwidth of nothing": (
        lambda d: ceilings(d)["bandwidth"][0].update(footprint_bytes=0),
        f"bandwidth[0].footprint_bytes: {ABOVE_0}",
    ),
    "much bandwidth": (
        lambda d: ceilings(d)["bandwidth"].extend(ceilings(d)["bandwidth"] * 256),
        "gpubench.ceilings.cuda:0.bandwidth: expected at most 256 entries, found 257",
    ),
    "throughput": (
        lambda d: ceilings(d)["throughput"].update(x="fast"),
        "throughput.x: expected a number, found 'fast'",
    ),
    "throughput of many": (
        lambda d: ceilings(d).update(throughput={str(i): 1e12 for i in range(65)}),
        "gpubench.ceilings.cuda:0.throughput: expected at most 64 entries, found 65",
    ),
    "launch floor": (
        lambda d: ceilings(d).update(launch_floor_s=0),
        f"launch_floor_s: {ABOVE_0}",
    ),
    "line feeds": (lambda d: stats(d).update(median="a\nb\x1b[31m"), "expected a number, found 'a"),
    "deep": (lambda d: stats(d).update(median=json.loads("[" * 300 + "]" * 300)), "expected a number, found [[["),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path: Path, name: str) -> None:
    edit, expected = BAD[name]
    data = measured_case()
    edit(data)
    path = save(tmp_path, data)
    with pytest.raises(RunFileError) as caught:
        reader.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert message.isprintable()


RAW = {
    "": "file: expected a run file, found an empty file",
    " \n": "file: expected a run file, found an empty file",
    '{"benchmarks": [': "line 1 column 17: expected JSON",
    "machine,device\n": "line 1 column 1: expected JSON",
    "[]": "file: expected a pytest-benchmark file",
    "3": "file: expected a pytest-benchmark file",
    '{"a": {}}': "file: expected a pytest-benchmark file",
    '{"a": 1, "b": {"c": 1, "c": 2}}': "key 'c': expected every key once in an object, found it twice",
    "[" * 200_000: "file: expected a run file, found JSON nested too deeply",
    '{"benchmarks": ' + "9" * 5000 + "}": "file: expected numbers of a sensible length",
}


@pytest.mark.parametrize("number", range(len(RAW)))
def test_refused_as_a_whole(tmp_path: Path, number: int) -> None:
    content, expected = list(RAW.items())[number]
    with pytest.raises(RunFileError) as caught:
        reader.read(save(tmp_path, content))
    assert f"run.json: {expected}" in str(caught.value)


def test_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b'{"benchmarks": "\xff"}')
    for name, expected in {
        "none.json": "No such file",
        "": "Is a directory",
        "bytes.json": "byte 16: expected",
    }.items():
        with pytest.raises(RunFileError, match=expected) as caught:
            reader.read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    text = json.dumps(one_case())
    for length in range(0, len(text) - 1, 97):
        with pytest.raises(RunFileError):
            reader.read(save(tmp_path, text[:length]))


def test_write_then_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    writer.write(path, one_case())
    assert json.loads(path.read_text()) == one_case()
    assert len(reader.read(path).results) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    writer.write(path, {"old": 1})
    with pytest.raises(RunFileError, match="expected finite numbers"):
        writer.write(path, {"new": float("nan")})
    with pytest.raises(UsageError, match="can't be written"):
        writer.write(tmp_path / "missing" / "run.json", {})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_file_is_replaced_and_not_written_over(tmp_path: Path) -> None:
    """Whoever has the old file open goes on reading the old one."""
    path, other = tmp_path / "run.json", tmp_path / "same"
    writer.write(path, {"old": 1})
    other.hardlink_to(path)
    writer.write(path, {"new": 1})
    assert (json.loads(other.read_text()), json.loads(path.read_text())) == ({"old": 1}, {"new": 1})


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    writer.write(path, {"old": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        writer.write(path, {"new": 1})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_standard_library_only() -> None:
    code = "import sys; from gpubench import runfile; print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "text",
    [
        '{"benchmarks": [], "a": 1, "a": 2}',
        '{"benchmarks": [], "a": {"b": [{"c": 1, "c": 2}]}}',
        '{"benchmarks": [], "\\u003a": 1, "a": 1, "a": 2}',
        '{"benchmarks": [], "a": ":", "a": 2}',
    ],
)
def test_a_key_that_stands_twice_is_seen_however_many_colons_there_are(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RunFileError, match="every key once in an object, found it twice"):
        reader.read(path)


def test_the_quick_parser_and_the_slow_one_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = records.run_file([records.benchmark(Case("a:\n\x1b[31m", "cpu", "float32", {"n": 2**62}), 1e-6)])
    for data in (records.cpu_run(2), records.gpu_run(), hostile):
        path = save(tmp_path, data)
        quick = reader.read(path)
        with monkeypatch.context() as patched:
            patched.setattr(reader, "_ordinary", lambda content: None)
            assert reader.read(path) == quick
