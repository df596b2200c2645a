"""Reading and writing run files: accepted files, and refusals in one line that names the place."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import records
from suites import plain

from gpubench.errors import RunFileError
from gpubench.report.study import Study
from gpubench.report.words import device_label
from gpubench.runfile import naming, runs, schema, writer
from gpubench.runfile.runs import read_runs
from gpubench.runfile.schema import Bandwidth, Case, Ceilings, Operators, Transfer, Work


def one_case(**changes: Any) -> dict[str, Any]:
    case = Case("matmul.square", "cuda:0", "float32", {"n": 64}, threads=2, size="n", devices=("cuda:0",))
    work = {"flops": 524288.0, "operators": [{"kind": "product", "count": 1, "flops": 524288.0, "bytes": 49152.0}]}
    mark = records.benchmark(case, 2e-5, work=work, medians=(1.9e-5, 2.1e-5))
    return records.run_file([mark], devices=(records.CPU, records.GPU), processes=2) | changes


def nested(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def save(folder: Path, data: Any) -> Path:
    path = folder / "run.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


APART, EVEN = (1.0, 2.0, 32.0), (1.9, 2.0, 2.1)


def test_a_time_of_several_processes_is_the_median_of_their_medians(tmp_path: Path) -> None:
    """A process is one observation: a slow one counts once, however few rounds it made."""
    case = Case("a.b", "cpu", "float32")
    data = [records.run_file([records.benchmark(case, 2.0, medians=each)], processes=3) for each in (APART, EVEN)]
    result, even = (runs.read(save(tmp_path, each)).results[0] for each in data)
    assert result.times.median_s == pytest.approx(2.0)
    assert result.times.q1_s <= result.times.median_s <= result.times.q3_s
    (flag,) = result.flags
    assert (flag.name, flag.seen) == ("noisy", "the slowest process took 32 times the fastest")
    assert flag.processes == (0, 1, 2)
    assert even.flags == ()


MEASURED: dict[str, Any] = {
    "transfer": {"in_bytes": 32768, "out_bytes": 16384, "in_s": 1e-5, "out_s": 2e-5, "in_pinned_s": 5e-6},
    "precision": {"tf32": True, "float32_matmul": "high"}, "cache": "cold", "memory_bytes": 98304,
    "device_s": 1.5e-5, "launch_s": 2e-6, "energy_j": 0.004,
}  # fmt: skip
CEILINGS: dict[str, Any] = {
    "bandwidth": [{"pattern": "copy", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 4e12}],
    "throughput": {"float32": 5e13}, "launch_floor_s": 2e-6,
    "host_to_device_byte_per_s": 5e10, "device_to_host_byte_per_s": None,
}  # fmt: skip


def measured_case() -> dict[str, Any]:
    """With all that can be known of a case, and of its device's peaks."""
    data = one_case()
    ours(data).update(copy.deepcopy(MEASURED))
    ours(data)["processes"][1]["flags"] = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    data["gpubench"]["ceilings"] = {"cuda:0": copy.deepcopy(CEILINGS)}
    data["gpubench"]["processes"][0]["flags"] = [{"flag": "contended", "seen": "load 3.1 on 2 cores"}]
    data["gpubench"]["processes"][1]["flags"] = [{"flag": "contended", "seen": "load 5.0 on 2 cores"}]
    data["gpubench"]["processes"][0]["canary"] = {"threads": 2, "one_s": 2e-4, "all_s": 1e-4}
    data["gpubench"]["processes"][1]["canary"] = {"threads": 2, "one_s": 2e-4, "all_s": 7e-3}
    return data


def test_everything_is_read(tmp_path: Path) -> None:
    data = measured_case()
    left = Case("matmul.square", "cpu", "float16", {"n": 8192}, size="n")
    data["gpubench"]["unmeasured"] = [records.unmeasured(left, "skipped", "too slow")]
    run = runs.read(save(tmp_path, data))
    assert (run.plain, run.processes, run.date, run.preset, run.seed) == (False, 2, "2026-01-31", "quick", 0)
    assert run.machine.device("cuda:0").label == "Synthetic H-GPU"
    assert run.machine.device("npu:3") == schema.DeviceFacts("npu:3", "npu", "")
    assert (run.machine.torch, run.machine.tf32, run.machine.threads) == ("2.13.0+cpu", False, 2)
    assert "not-to-be-shown" not in repr(run)  # the host name
    assert run.flags == (schema.Raised("contended", "load 3.1 on 2 cores", (0, 1)),)
    assert run.slow_threads == (1,)
    bandwidth = (Bandwidth("copy", 1e9, 4e12, "memory"),)
    assert run.ceilings == {"cuda:0": Ceilings(bandwidth, {"float32": 5e13}, 2e-6, 5e10, None)}
    result, unmeasured = run.results
    assert (unmeasured.times, unmeasured.status, unmeasured.reason) == (None, "skipped", "too slow")
    work = Work(flops=524288.0, operators=(Operators("product", 1, 524288.0, 49152.0),))
    assert (result.case.id, result.work) == ("matmul.square[float32-cold-n=64]", work)
    assert result.times.median_s == pytest.approx((1.9e-5 * 2.1e-5) ** 0.5)
    assert [process.median_s for process in result.times.processes] == [1.9e-5, 2.1e-5]
    assert [list(kept) for kept in result.times.samples] == [[1.9e-5], [2.1e-5]]
    assert (result.device_s, result.launch_s, result.memory_bytes, result.energy_j) == (1.5e-5, 2e-6, 98304, 0.004)
    assert result.transfer == Transfer(32768, 16384, 1e-5, 2e-5, 5e-6, None)
    assert (result.precision, result.case.cache) == ({"tf32": True, "float32_matmul": "high"}, "cold")
    assert result.flags == (schema.Raised("noisy", "IQR 40 % of the median", (1,)),)
    data["machine_info"]["gpubench"]["threads"] = 1
    assert runs.read(save(tmp_path, data)).slow_threads == ()


def test_what_was_not_measured_is_none_an_unknown_key_is_passed_over_and_an_unknown_flag_is_noise(
    tmp_path: Path,
) -> None:
    data = one_case(tomorrow={"x": [float(7)]})
    ours(data)["tomorrow"] = 1
    ours(data)["processes"][0]["flags"] = [{"flag": "haunted", "seen": "a ghost"}]
    data["machine_info"]["gpubench"]["precision"] = {}
    run = runs.read(save(tmp_path, data))
    (result,) = run.results
    assert (result.device_s, result.launch_s, result.transfer, result.energy_j) == (None,) * 4
    assert [(flag.name, flag.seen) for flag in result.flags] == [("noisy", "haunted: a ghost")]
    assert (run.ceilings, run.flags, run.slow_threads, run.machine.tf32) == ({}, (), (), None)


def test_plain_file(tmp_path: Path) -> None:
    params = {"n": 1, "shape": [1, 2], "odd": float("nan")}
    name = "a/b/test_sorting.py::TestFast::test_sort[x-1]"
    run = runs.read(save(tmp_path, plain_run({"fullname": name, "params": params})))
    (result,) = run.results
    assert (run.plain, run.machine.label, result.work) == (True, "Synthetic CPU", Work())
    nothing = dict.fromkeys(("implementation", "variant", "cache"), "")
    shown = {"n": 1, "shape": "[1, 2]", "odd": "nan"}
    assert result.case == Case("a/b/test_sorting.py::TestFast::test_sort", "", "", shown, **nothing)
    assert result.times is not None
    assert len(result.times.processes) == 1


DEVICES = {name: f"UNSERIALIZABLE[device(type='{kind}')]" for name, kind in (("a", "cpu"), ("b", "mps"))}


@pytest.mark.parametrize(
    ("fullname", "params", "name", "device", "dtype"),
    [
        ("test_f[cuda-1]", {"device": "cuda", "n": 1}, "test_f[n=1]", "cuda:0", ""),
        ("test_f[x0]", {"x": "UNSERIALIZABLE[device(type='cuda', index=1)]"}, "test_f", "cuda:1", ""),
        ("test_f[cpu-cuda]", {"src": "cpu", "dst": "cuda"}, "test_f[src=cpu-dst=cuda]", "", ""),
        ("test_f[d0-d1]", DEVICES, "test_f[id=d0-d1]", "", ""),
        ("test_f[dtype0]", {"dtype": "UNSERIALIZABLE[torch.bfloat16]"}, "test_f[bfloat16]", "", "bfloat16"),
        ("test_f[a-b-3]", {"fn": "UNSERIALIZABLE[<a>]", "n": 3}, "test_f[n=3-id=a-b-3]", "", ""),
        ("test_f[xs0]", {"xs": list(range(900))}, "test_f[id=xs0]", "", ""),
    ],
)  # fmt: skip
def test_a_plain_benchmarks_parameters_say_its_device_and_dtype_and_are_readable(fullname, params, name, device, dtype):
    devices = [schema.DeviceFacts(name, name.partition(":")[0]) for name in ("cpu", "cuda:0", "cuda:1", "mps")]
    case = naming.plain_case(f"a/h2d_test.py::{fullname}", params, devices)
    assert (case.id, case.device, case.dtype) == (f"a/h2d_test.py::{name}", device, dtype)


def plain_run(*marks: dict[str, Any]) -> dict[str, Any]:
    """A file of pytest-benchmark alone, its entries with these values in place of a healthy one's."""
    data = plain(one_case(), params=None)
    return data | {"benchmarks": [copy.deepcopy(data["benchmarks"][0]) | mark for mark in marks]}


@pytest.mark.parametrize(
    ("marks", "names"),
    [
        ([{"fullname": "::test_x"}] * 2 + [{"fullname": "::test_y[1]", "params": {"n": 1}}] * 2,
         ["test_x", "test_x#2", "test_y[n=1]", "test_y#2[n=1]"]),
        ([{"fullname": f"{at}/test_x.py::test_f"} for at in "ab"], ["a/test_x.py::test_f", "b/test_x.py::test_f"]),
    ],
)  # fmt: skip
def test_names_of_plain_benchmarks(tmp_path: Path, marks: list[dict[str, Any]], names: list[str]) -> None:
    assert [result.case.id for result in runs.read(save(tmp_path, plain_run(*marks))).results] == names


def test_tests_of_one_name_are_several_benchmarks(tmp_path: Path) -> None:
    twice = measured_case()
    twice["benchmarks"].append(copy.deepcopy(twice["benchmarks"][0]))
    workloads = [each.case.workload for each in runs.read(save(tmp_path, twice)).results]
    assert workloads == ["matmul.square", "matmul.square#2"]


@pytest.mark.parametrize(("given", "device"), [("CPU", "cpu"), ("CUDA", "cuda"), ("CUDA:1", "cuda:1"), (None, "")])
def test_a_plain_file_says_which_device_or_it_is_the_cpu(tmp_path: Path, given: str | None, device: str) -> None:
    (row,) = Study([runs.read(save(tmp_path, plain_run({"params": {"Device": given} if given else {}})))]).rows
    assert row.result.device == device
    assert given or device_label(row.run, device) == "Synthetic CPU"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"stats": {"median": 0, "mean": 0}}, "no number: 0 s by its clock"),
        ({"stats": None}, "no number: benchmarks[1].stats: expected"),
        ({"params": [1]}, "no number: benchmarks[1].params: expected"),
        ({"fullname": None}, "no number: benchmarks[1].fullname: expected"),
    ],
)
def test_an_entry_that_cant_be_used_costs_its_row_alone(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    run = runs.read(save(tmp_path, plain_run({"fullname": "test_a.py::test_b"}, {"fullname": "c.py::test_d"} | bad)))
    assert [result.status for result in run.results] == ["ok", "error"]
    assert (run.results[1].reason or "").startswith(reason)
    assert run.results[1].times is None


def test_a_row_without_a_number_that_cant_be_used_costs_that_row_alone(tmp_path: Path) -> None:
    data = measured_case()
    skipped, unknown = {"workload": "a", "device": "cpu", "status": "skipped"}, {"fullname": "test_b.py::test_c"}
    data["gpubench"]["unmeasured"] = [skipped, unknown | {"status": "ok"}, 7]
    measured, skipped, *bad = runs.read(save(tmp_path, data)).results
    assert (measured.status, skipped.status, [row.status for row in bad]) == ("ok", "skipped", ["error"] * 2)
    assert bad[0].workload == "test_b.py::test_c"
    assert [str(row.reason)[:33] for row in bad] == [f"no number: gpubench.unmeasured[{i}]" for i in (1, 2)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"benchmarks": [{"name": "BM_parse/8", "real_time": 1.0}]}', "benchmarks: another tool's results"),
        ('{"benchmarks": [{"name": "a", "stats": {"min_ns": 1, "mean_ns": 2}}]}', "benchmarks: another tool's results"),
        ('{"benchmarks": [{"metadata": {"name": "a"}, "runs": []}]}', "benchmarks: another tool's results"),
        ('{"benchmarks": {"time_sum": {"result": 1}}}', "benchmarks: another tool's results"),
        ("// settings\n{}", "file: expected JSON"),
        ("", "file: expected a run file, found an empty file"),
        ('{"results": [{"command": "a", "mean": 1}]}', ""),
    ],
    ids=["google-benchmark", "pytest-codspeed", "pyperf", "asv", "no JSON", "interrupted", "hyperfine"],
)
def test_another_tools_file_is_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    save(tmp_path, plain_run({}))
    (tmp_path / "other.json").write_text(content)
    assert len(list(read_runs([tmp_path]))) == 1
    assert (f"other.json: {said}" if said else "") in (err := capsys.readouterr().err)
    assert bool(err) == bool(said)
    with pytest.raises(RunFileError, match=said or "expected a pytest-benchmark file"):
        runs.read(tmp_path / "other.json")


def test_a_results_file_that_was_cut_off_is_not_passed_over(tmp_path: Path) -> None:
    save(tmp_path, plain_run({}))
    (tmp_path / "cut.json").write_text('{"benchmarks": [{"stats": {"me')
    with pytest.raises(RunFileError, match="file: expected JSON"):
        list(read_runs([tmp_path]))


def test_a_plain_benchmark_among_ours(tmp_path: Path) -> None:
    data = one_case()
    other = copy.deepcopy(data["benchmarks"][0]) | {"extra_info": {}, "fullname": "test_a.py::test_b", "params": None}
    data["benchmarks"].append(other)
    run = runs.read(save(tmp_path, data))
    assert [result.case.workload for result in run.results] == ["matmul.square", "test_a.py::test_b"]


def ours(data: dict[str, Any]) -> dict[str, Any]:
    return data["benchmarks"][0]["extra_info"]["gpubench"]  # type: ignore[no-any-return]


CASE, MEASURED_AT, PEAKS = "benchmarks[0].stats", "benchmarks[0].extra_info.gpubench", "gpubench.ceilings.cuda:0"
FLAG = {"flag": "noisy", "seen": ""}
BAD: dict[str, list[Any]] = {
    "gpubench.schema_version": [2, 4, 0, True, None, "3"],
    f"{CASE}.median": [float("nan"), float("inf"), -1.0, 0, 10**400, "1", True, None, "a\nb\x1b[31m", nested(300)],
    f"{CASE}.min": [-1.0], f"{CASE}.iqr": ["1"], f"{CASE}.rounds": [1.5], f"{CASE}.data[1]": [-1, "x", None],
    f"{CASE}.data": [[1.0], [1.0] * 3, 1.0], CASE: [{}],
    "benchmarks[0].options.timer": ["perf_counter", None],
    f"{MEASURED_AT}.params[...]": [[1]], f"{MEASURED_AT}.precision[...]": [[1]],
    f"{MEASURED_AT}.work.operators[0].bytes": [-1.0, 1e31],
    f"{MEASURED_AT}.work.flops": [0], f"{MEASURED_AT}.workload": [3, None], f"{MEASURED_AT}.devices": ["cuda:0"],
    f"{MEASURED_AT}.device_s": [-1e-6], f"{MEASURED_AT}.launch_s": [0], f"{MEASURED_AT}.energy_j": ["1"],
    f"{MEASURED_AT}.memory_bytes": [-1], f"{MEASURED_AT}.check.error": [-0.1], f"{MEASURED_AT}.transfer": [[1], {}],
    f"{MEASURED_AT}.transfer.in_s": [0], f"{MEASURED_AT}.transfer.out_bytes": [0.5],
    f"{MEASURED_AT}.cache": ["lukewarm"], f"{MEASURED_AT}.precision": ["tf32", {str(i): i for i in range(65)}],
    f"{MEASURED_AT}.processes[0].flags": [{"a": 1}], f"{MEASURED_AT}.processes[1].flags[0]": ["noisy", {}],
    "gpubench.processes[0].flags": [[FLAG] * 33],
    "gpubench.unmeasured": [{}, [{}] * 20_001], "gpubench.started": ["../../x"], "gpubench.seed": [-1],
    "gpubench.ceilings": [[1], {str(i): {} for i in range(257)}],
    f"{PEAKS}.bandwidth[0].byte_per_s": [-4e12], f"{PEAKS}.bandwidth[0].footprint_bytes": [0],
    f"{PEAKS}.bandwidth": [CEILINGS["bandwidth"] * 257], f"{PEAKS}.throughput[...]": ["fast"],
    f"{PEAKS}.throughput": [{str(i): 1e12 for i in range(65)}], f"{PEAKS}.launch_floor_s": [0],
    "benchmarks": [{}, None, [{}] * 20_001], "benchmarks[0].options": [[]], "machine_info": [[]],
    "machine_info.gpubench.precision.tf32": ["no"],
}  # fmt: skip


@pytest.mark.parametrize("place", BAD)
def test_a_bad_value_is_refused_with_its_place(tmp_path: Path, place: str) -> None:
    *way, last = (int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+|\.\.\.", place))
    for value in BAD[place]:
        data = measured_case()
        data["gpubench"]["unmeasured"] = [{"workload": "a", "device": "cpu", "status": "skipped"}]
        group: Any = data
        for key in way:
            group = group[key]
        group[last] = value
        path = save(tmp_path, data)
        with pytest.raises(RunFileError) as caught:
            runs.read(path)
        message = str(caught.value)
        shown = place.replace(".cuda:0", "[...]").removesuffix(".started")  # which the message itself names
        assert message.startswith(f"{path}: {shown}: ")
        assert message.isprintable()
        assert len(message) < 400


def test_what_must_hold_between_values(tmp_path: Path) -> None:
    twice, several = measured_case(), measured_case()
    ours(twice)["processes"][1]["process"] = 0
    ours(several)["device"] = "cpu"
    several["benchmarks"][0]["options"].clear()
    for data, words in ((twice, "each process once"), (several, "waits for cuda:0")):
        with pytest.raises(RunFileError, match=words):
            runs.read(save(tmp_path, data))


REFUSED: dict[bytes, str] = {
    b" \n": "file: expected a run file, found an empty file",
    b'{"benchmarks": [': "file: expected JSON (Expecting value: line 1 column 17",
    b'{"benchmarks": "\xff"}': "file: expected JSON",
    b"[]": "file: expected a pytest-benchmark file",
    b"3": "file: expected a pytest-benchmark file",
    b'{"a": {}}': "file: expected a pytest-benchmark file",
    b"[" * 200_000: "nested too deep to be a results file",
    b'{"benchmarks": ' + b"9" * 5000 + b"}": "file: expected JSON (Exceeds the limit",
    b'{"benchmarks": [], "a": [' + b"1," * 2_000_000 + b"1]}": "file: expected at most 256 MiB, and",
}
HEADS = b"\x1f\x8b\x08\0\0", b"PK\x03\x04", b"BZh91AY", b"\xfd7zXZ\0\0", b"\x28\xb5\x2f\xfd"
REFUSED |= dict.fromkeys(HEADS, "file: expected JSON (it is compressed: unpack it first)")


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: repr(content[:20]))
def test_refused_as_a_whole(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RunFileError) as caught:
        runs.read(path)
    assert str(caught.value).startswith(f"{path}: {REFUSED[content]}")
    assert str(caught.value).isprintable()


def test_a_file_is_replaced_and_not_written_over(tmp_path: Path) -> None:
    """Whoever has the old file open goes on reading the old one."""
    path, other = tmp_path / "run.json", tmp_path / "same"
    writer.write(path, {"old": 1})
    other.hardlink_to(path)
    writer.write(path, {"new": 1})
    assert (json.loads(other.read_text()), json.loads(path.read_text())) == ({"old": 1}, {"new": 1})


def test_texts_are_one_printable_line_whatever_parses_them(tmp_path: Path) -> None:
    case = Case("a:\n\x1b[31m" + "x" * 5000, "cpu", "float32", {"n\u2028": "\ud800"})
    path = save(tmp_path, records.run_file([records.benchmark(case, 1e-6)]))
    quick = runs.read(path)
    assert quick.results[0].workload == "a: \N{REPLACEMENT CHARACTER}[31m" + "x" * 1992
    assert quick.results[0].params == {"n ": "\N{REPLACEMENT CHARACTER}"}
    path.write_bytes(path.read_bytes().replace(b"\\ud800", b"\\u0000"))
    assert runs.read(path).results == quick.results
