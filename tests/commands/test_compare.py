"""``gpubench compare`` from options to exit code: its sentences, refusals and lists, from which nothing drops."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import records
from suites import NAMES, change, plain, run_file

from gpubench.commands.cli import main
from gpubench.compare.evidence import Cause, Reason
from gpubench.runfile.schema import Case


@pytest.mark.parametrize(
    ("base", "new", "words", "code", "line"),
    [
        ((1, 0), (1, 1e-4), (), 0, "no slowdown proven at a threshold of 5 %: 6 same"),
        ((1, 0), (1.2, 1e-4), (), 1, "slowdown proven at a threshold of 5 %: 1 slower, 5 same"),
        ((1.2, 0), (1, 1e-4), (), 0, "1 faster, 5 same"),
        ((1, 0), (1.2, 1e-4), ("--threshold", "30%"), 0, "6 same"),
    ],
)
def test_exit_code_and_line(shown, base, new, words, code, line) -> None:
    found, shown, _ = shown(run_file(*base), run_file(*new), *words)
    assert found == code
    assert shown.splitlines()[-1].startswith("gpubench compare: ")
    assert line in shown
    assert ("+20.0 %" in shown) == (new[0] == 1.2)


@pytest.fixture
def shown(save, capsys):
    """The exit code of two runs, each a path or a file's content, and the printed text; Markdown without escapes."""

    def shown(base, new, *words):
        sides = [side if isinstance(side, str) else save(f"{name}.json", side)
                 for name, side in (("base", base), ("new", new))]  # fmt: skip
        code, printed = main(["compare", *sides, *words]), capsys.readouterr()
        return code, printed.out.replace("\\", ""), printed.err

    return shown


@pytest.fixture
def compared(shown):
    """The exit code and the JSON of two runs."""

    def compared(base, new, *words):
        return (printed := shown(base, new, *words, "--format=json"))[0], json.loads(printed[1])

    return compared


@pytest.mark.parametrize(("factor", "word"), [(5, "slower"), (0.2, "faster")])
def test_a_change_by_times_has_its_interval_in_times(shown, factor, word) -> None:
    _, text, _ = shown(run_file(), run_file(factor))
    (line,) = (line for line in text.splitlines() if line.startswith("a.slow"))
    low, high = map(float, re.search(rf"  5× {word} +([\d.]+) … ([\d.]+)×  ", line).groups())
    assert 4.5 < low < 5 < high < 5.5


def test_json(compared) -> None:
    code, document = compared(run_file(), run_file(1.2))
    assert (code, document["verdict"], document["exit_code"]) == (1, "slower", 1)
    case = document["cases"][1]
    assert set(case) >= {"id", "verdict", "ratio", "low", "high", "base_s", "new_s", "p", "processes"}
    assert (case["id"], case["verdict"]) == ("a.slow[float32-n=8]", "slower")
    assert case["ratio"] == pytest.approx(1.2)
    assert case["low"] < 1.2 < case["high"]
    assert (case["base_s"], case["new_s"]) == pytest.approx((2e-3, 2.4e-3), rel=1e-4)
    assert case["p"] < 0.01
    assert case["processes"] == {"base": 3, "new": 3}


def test_plain_files_are_known_by_their_full_names_and_one_run_is_inconclusive(compared) -> None:
    sides = plain(run_file()), plain(run_file(1.2))
    code, document = compared(*sides)
    assert (code, document["verdict"]) == (0, "inconclusive")
    assert compared(*sides, "--fail-inconclusive")[0] == 1
    case = document["cases"][1]
    assert case["id"] == "benchmarks/test_a.py::test_slow[a.slow[float32-n=8]]"
    assert (case["low"], case["high"], case["p"]) == (None, None, None)
    assert "more runs per side would detect a change of 5 %" in case["advice"]


def test_runs_in_folders_of_their_own_and_copies(save, tmp_path: Path, shown) -> None:
    for side, factor in (("base", 1.0), ("new", 1.2)):
        for i in range(2):
            (tmp_path / side / f"r{i}").mkdir(parents=True)
            run = save(f"{side}/r{i}/run.json", run_file(factor, i * 1e-3))
        copied = save(f"{side}/r1/zcopy.json", run_file(factor, 1e-3))
    shared = save("new/base.json", run_file(1.0))
    code, document, told = shown(str(tmp_path / "base"), str(tmp_path / "new"), "--format=json")
    document = json.loads(document)
    assert code == 1
    assert document["cases"][1]["processes"] == {"base": 6, "new": 9}
    assert f"{copied} holds the run of {run}: counted once" in told
    assert any(note.startswith(f"on both sides: {shared}") for note in document["notes"])


def test_nothing_is_taken_off_runs_that_were_made_in_turn(save, tmp_path: Path, compared) -> None:
    """All benchmarks 10 % slower: of one run after the other it could be the machine."""
    for code, order in ((1, "abbaab"), (0, "aaabbb")):
        for turn, side in enumerate(order):
            (tmp_path / order / side).mkdir(parents=True, exist_ok=True)
            data = run_file(wobble=0.1 * (side == "b") + 1e-3 * (turn % 3))
            data["gpubench"]["started"] = f"2026-01-31T12:{turn:02d}:00+00:00"
            save(f"{order}/{side}/{turn}.json", data)
        for words in ((), ("--allow=machine",)):  # which they don't differ in
            assert compared(str(tmp_path / order / "a"), str(tmp_path / order / "b"), *words)[0] == code


def started(*words, command=(sys.executable, "-m", "gpubench"), stdout=subprocess.PIPE, **environment):
    """The command in a process of its own."""
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([*command, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env=known)


@pytest.mark.parametrize("words", [["compare"], ["compare", "--format=json"], ["show"], ["report"]])
def test_a_reader_that_has_gone_is_no_verdict(save, tmp_path: Path, words) -> None:
    run = save("run.json", run_file())  # fits into a buffer, so that the last flush fails
    more = {"compare": [run, run], "show": [run]}
    more["report"] = [run, "--charts=none", "-o", str(tmp_path / "out")]
    reader, writer = os.pipe()
    os.close(reader)
    done = started(*words, *more[words[0]], stdout=writer, PYTHONUNBUFFERED="")
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


def test_what_is_missing_is_listed_and_fails_on_request(shown, compared) -> None:
    base, new = run_file(names=("a.fast", "only.base", "went.wrong")), run_file(names=("a.fast", "only.new"))
    new["gpubench"]["unmeasured"] = [records.unmeasured(records.case("went.wrong"), "error", "ValueError: mine")]
    code, document = compared(base, new)
    assert (code, [case["id"] for case in document["cases"]]) == (0, ["a.fast[float32-n=8]"])
    assert {(each["id"], each["side"], each["reason"]) for each in document["missing"]} == {
        ("only.base[float32-n=8]", "new", "not in the results"),
        ("only.new[float32-n=8]", "base", "not in the results"),
        ("went.wrong[float32-n=8]", "new", "error: ValueError: mine"),
    }
    for form in ("table", "markdown"):
        code, text, _ = shown(base, new, "--format", form)
        assert code == 0
        assert "; in base but not in new: 1 error, 1 not in the results; 1 only in new" in text
        assert "ValueError: mine" in text
        assert "only.base float32, n=8" in text
    assert shown(base, new, "--fail-missing")[0] == 1
    assert shown(run_file(names=("a.fast",)), new, "--fail-missing")[0] == 0


def test_the_reason_why_a_plain_test_lost_its_time_is_printed(save, capsys, compared) -> None:
    test, lost = "benchmarks/test_a.py::test_slow[8]", Case("a.slow", "", "", {"n": 8}, "")
    base, new = run_file(names=("a.fast", "a.slow")), run_file(names=("a.fast",))
    base["benchmarks"][1]["fullname"] = test
    base["benchmarks"][1]["extra_info"]["gpubench"] |= {"device": "", "implementation": "", "dtype": "", "devices": []}
    new["gpubench"]["unmeasured"] = [records.unmeasured(lost, "error", "ValueError: mine") | {"fullname": test}]
    (missing,) = compared(base, new)[1]["missing"]
    assert (missing["id"], missing["side"], missing["reason"]) == (test, "new", "error: ValueError: mine")


def test_nothing_in_common_is_three(shown, compared) -> None:
    code, document = compared(*(runs := (run_file(names=("x.y",)), run_file(names=("z.y",)))))
    assert (code, document["verdict"], document["exit_code"], document["cases"]) == (3, "nothing", 3, [])
    assert len(document["missing"]) == 2
    each_has = "base has 1 benchmark (x.y); new has 1 benchmark (z.y)"
    line = f"gpubench compare: nothing to compare: no benchmark was measured on both sides: {each_has}\n"
    assert shown(*runs) == (3, "", line)
    code, page, _ = shown(*runs, "--format", "markdown")
    assert (code, page.count(each_has)) == (3, 1)
    runs[1]["gpubench"]["unmeasured"] = [records.unmeasured(records.case("x.y"), "skipped", "needs a GPU")]
    assert compared(*runs)[0] == 3


def test_two_cases_of_one_name_are_named_and_not_mixed(compared) -> None:
    data = plain(run_file())
    data["benchmarks"].append(copy.deepcopy(data["benchmarks"][0]))
    code, document = compared(data, plain(run_file(1.2)))
    assert (code, len(document["cases"])) == (0, 6)
    assert [each["id"] for each in document["missing"] if "#2" in each["id"]]


def smoke(data):
    data["gpubench"]["preset"] = "smoke"
    return data


def others(data, *processes):
    """With other programs that used the cores of these processes in all cases."""
    for mark in data["benchmarks"]:
        for process in processes:
            flag = {"flag": "contended", "seen": "other processes used 50% of the 2 cores"}
            mark["extra_info"]["gpubench"]["processes"][process]["flags"] = [flag]
    return data


@pytest.mark.parametrize("tried", [("base",), ("new",), ("base", "new")])
def test_a_smoke_run_proves_nothing_and_says_what_would(compared, tried) -> None:
    runs = {"base": run_file(), "new": run_file(1500)}
    code, document = compared(*(smoke(run) if name in tried else run for name, run in runs.items()))
    assert (code, document["verdict"]) == (0, "inconclusive")
    for case in document["cases"]:
        assert (case["verdict"], case["p"], case["low"], case["high"]) == ("inconclusive", None, None, None)
        assert (case["cause"], case["advice"]) == ("smoke", Cause.SMOKE.advice)
    told = " ".join(document["notes"])
    assert f"smoke runs prove nothing, they take too few rounds ({' and '.join(tried)})" in told
    assert ("presets differ: base " in told) == (len(tried) == 1)


def test_a_smoke_run_among_others_does_not_count(save, tmp_path: Path, compared) -> None:
    (tmp_path / "new").mkdir()
    save("new/new.json", run_file(1.2, 1e-4))
    save("new/smoke.json", smoke(run_file(0.1)))
    code, document = compared(run_file(), str(tmp_path / "new"))
    case = document["cases"][1]
    assert (code, case["verdict"], case["processes"]) == (1, "slower", {"base": 3, "new": 3})
    assert case["new_s"] / case["base_s"] == pytest.approx(case["ratio"]) == pytest.approx(1.2, rel=1e-3)


def test_one_process_a_side_with_slow_threads_proves_nothing_however_slow(compared) -> None:
    quiet, slow = (records.run_file([records.benchmark(records.case("a.slow"), time)]) for time in (1e-3, 1.5))
    assert compared(quiet, slow)[0] == 1
    slow["gpubench"]["processes"][0]["canary"] = {"threads": 2, "one_s": 1.5e-4, "all_s": 7e-3}
    code, document = compared(quiet, slow)
    assert (code, document["verdict"], document["cases"][0]["advice"]) == (0, "inconclusive", Cause.SLOW_THREADS.advice)


def test_a_load_at_the_start_and_flags_of_some_cases_are_only_hints(compared) -> None:
    new = run_file(1.5, flags=("contended",))
    for mark in others(new, 0, 1, 2)["benchmarks"][1:5]:
        for process in mark["extra_info"]["gpubench"]["processes"]:
            process["flags"] = []
    code, document = compared(run_file(), new)
    assert (code, document["cases"][1]["processes"]) == (1, {"base": 3, "new": 3})


def test_markdown_escapes_and_folds(save, capsys) -> None:
    names = ("a.slow", "b.<img src=x>|`", "c.d", "c.e", "c.f" * 50)
    files = [save("base.json", run_file(names=names)), save("new.json", run_file(1.2, 1e-4, names))]
    assert main(["compare", *files, "--format", "markdown"]) == 1
    page = capsys.readouterr().out
    whole = "c.f" * 50  # Markdown folds its lines itself
    assert all(text in page for text in ("**slowdown proven", "b.&lt;img src=x&gt;\\|\\`", "4 the same", whole))
    assert "<img" not in page


def test_an_expression_narrows_what_is_shown_and_changes_no_verdict(compared) -> None:
    runs = run_file(), run_file(1.2, names=(*NAMES[:3], "z.new"))
    _, everything = compared(*runs)
    for expression, code in (("a.slow", 1), ("b.even", 0), ("a.fast and float32", 0), ("n=8 and not a.slow", 0)):
        found, document = compared(*runs, "-k", expression)
        assert found == code
        assert document["cases"]
        assert all(case in everything["cases"] for case in document["cases"])
    assert compared(*runs, "-k", "a.slow")[1]["missing"] == []
    code, document = compared(*runs, "-k", "z")
    assert (code, [each["id"] for each in document["missing"]]) == (3, ["z.new[float32-n=8]"])


def test_ten_lines_at_most_say_it_before_the_table(shown) -> None:
    many = tuple(f"w.w{i}" for i in range(30))
    new = run_file(1.2, 1e-4, names=("a.slow", *many))
    for mark in new["benchmarks"][5:]:  # their processes differ
        for i, process in enumerate(mark["extra_info"]["gpubench"]["processes"]):
            process["median_s"] *= 1 + 0.4 * i
    code, text, _ = shown(run_file(names=("a.slow", *many)), new)
    assert code == 1
    lead = text.partition("\nComparison")[0].splitlines()
    assert 2 <= len(lead) <= 10
    assert lead[0] == "Slower: a.slow float32, n=8 +20.0 %"
    assert lead[1].startswith("Inconclusive (30), too noisy")
    assert " more runs per side would detect a change of 5 % in w.w" in lead[1]


def test_a_disturbed_side_is_a_line_and_few_rows(shown, compared) -> None:
    names = tuple(f"w.w{i}" for i in range(30))
    why = str(Reason(Cause.BESIDE, ("new",)))
    runs = run_file(names=names), others(run_file(1.3, names=names), 0, 1, 2)
    code, document = compared(*runs)
    assert (code, {case["reason"] for case in document["cases"]}) == (0, {why})
    _, text, _ = shown(*runs)
    assert text.startswith(f"Inconclusive (30), {why}. The machine was busy: measure again")
    assert "new: other programs used the cores in 3 of 3 processes" in text
    assert [f"w.w{i} " in text for i in (0, 9, 10, 17)] == [True, True, False, False]
    assert "20 more are inconclusive and changed less" in text
    _, page, _ = shown(*runs, "--format=markdown")
    assert page.index(why) < page.index("w.w9") < page.index("\n20 more inconclusive\n") < page.index("w.w17")
    _, text, _ = shown(run_file(names=names[:6]), others(run_file(names=names[:6]), 0, 1, 2))
    lead, table = text.split("\nComparison")
    assert lead.startswith(f"Inconclusive (6), {why}.")
    assert [f"w.w{i}" in table for i in range(7)] == [True] * 6 + [False]
    assert "reason" not in table
    assert "processes" not in table


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (("b/x_test.py::test_f[1]", "b/x_test.py::test_f[2]"), "test_f[1]"),
        (("b/c/x_test.py::test_f[1]", "b/d/x_test.py::test_f[1]"), "c/x_test.py::test_f[1]"),
        (("x_test.py::test_f", "b/y_test.py::test_f"), "b/y_test.py::test_f"),
        (("b/x_test.py::test_f", "own.case"), "test_f"),
        (("/x/test_x.py::test_a", "b/y_test.py::test_f"), "/x/test_x.py::test_a"),
    ],
)
def test_tests_are_called_by_their_ids_without_what_all_share(shown, names, called) -> None:
    data = plain(run_file(names=tuple(f"w.w{i}" for i in range(len(names)))))
    for mark, name in zip(data["benchmarks"], names, strict=True):
        mark["fullname"] = name
    again = data | {"datetime": "2026-02-01T12:00:00+00:00"}
    code, text, _ = shown(data, again)
    assert (code, f"  {called} " in text.replace("\n", "\n  ")) == (0, True)
    assert shown(data, again, "-k", called.rpartition("::")[2].partition("[")[0])[0] == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("side", ["base", "new"])
def test_odd_input_and_output_is_one_line_and_no_slowdown(save, tmp_path: Path, capsys, monkeypatch, side) -> None:
    monkeypatch.chdir(tmp_path)
    run, slow = save("run.json", run_file()), save("slow.json", run_file(1.2))
    assert main(["compare", run, slow]) == 1
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("gone.json").symlink_to("nowhere.json")
    for name in ("empty", "notes", "runs.json"):
        Path(name).mkdir()
    texts = {"notes/a.json": "{}", "latin.json": "\udce9", "null.json": "null", "deep.json": "[" * 10**5,
             "page.html": "<html>", "zeros": "\0" * 99, "none.json": json.dumps(run_file(names=()))}  # fmt: skip
    for name, text in texts.items():
        Path(name).write_text(text, errors="surrogateescape")
    long = "x" * 5000, "/".join(["y" * 200] * 30)
    names = "pipe", "loop", "gone.json", "empty", "notes", "runs.json", "run.json/x", "*.json", "\udce9.json", ""
    for odd in (*names, *texts, *long, "/dev/null", "/dev/zero"):
        capsys.readouterr()
        assert main(["compare", *([odd, slow] if side == "base" else [run, odd])]) in (2, 3), odd
        shown = capsys.readouterr()
        assert (shown.err.count("\n"), shown.out) == (1, ""), odd
        assert "Traceback" not in shown.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_output_is_no_slowdown(save) -> None:
    run = save("run.json", run_file())
    slow = save("slow.json", run_file(1.2))
    forms = ([], ["--format=json"], ["--format=markdown"], ["-k", "a"])
    compared = (["compare", run, slow, *form] for form in forms)
    for words in (["show", run], ["run", "--help"], ["compare", run, run], *compared):
        with open("/dev/full", "w") as full:
            done = started(*words, stdout=full)
        assert (done.returncode, done.stderr) == (2, "gpubench: output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_an_error_that_can_not_be_printed_is_no_slowdown(save, to) -> None:
    run, other = save("run.json", run_file()), save("other.json", change(run_file(), "threads", to=1))
    for words in ("compare gone.json y", f"compare {run} {other}", "compare --interleave no-such one", "frobnicate"):
        done = started(f"{sys.executable} -m gpubench {words} 2{to}", command=("sh", "-c"))
        assert done.returncode == 2, words


def test_what_no_side_could_measure_is_listed(compared) -> None:
    crashed = records.unmeasured(records.case("went.wrong"), "crashed", "killed by SIGSEGV")
    skipped = records.unmeasured(records.case("not.here"), "skipped", "needs a GPU")
    for names, code in (((), 2), (("a.fast",), 0)):
        runs = [run_file(names=names), run_file(1.001, names=names)]
        for run in runs:
            run["gpubench"]["unmeasured"] = [crashed, skipped]
        found, document = compared(*runs)
        (missing,) = document["missing"]
        assert (found, missing["side"], missing["reason"]) == (code, "both", "crashed: killed by SIGSEGV")


def old(data, brand):
    """As pytest-benchmark writes it with py-cpuinfo, or without."""
    data = plain(data)
    data["machine_info"]["cpu"] = {"brand_raw": brand} if brand else {}
    return data


@pytest.mark.parametrize(("base", "new", "code"), [("i7", "i7", 1), ("i7", "Ryzen", 2), ("i7", "", 0), ("", "", 0)])
def test_a_cpu_that_a_file_does_not_name_proves_nothing(shown, base, new, code) -> None:
    runs = old(run_file(), base), old(run_file(9), new)
    found, text, errors = shown(*runs)
    assert (found, "CPU i7 → Ryzen" in errors, "the CPU is unknown: " in text) == (code, code == 2, code == 0)
    assert shown(*runs, "--allow", "machine")[0] == 1


def test_a_defect_is_no_slowdown(save, monkeypatch, capsys) -> None:
    monkeypatch.setattr("gpubench.compare.samples.add_runs", lambda *sides, **how: 1 / 0)
    run = save("run.json", run_file())
    assert main(["compare", run, run]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_names_are_those_of_reports_and_can_be_typed(shown, compared) -> None:
    base, new = run_file(names=("a.slow",)), run_file(1.2, names=("a.slow",))
    for run in (base, new):
        run["benchmarks"][0] = records.benchmark(records.case("a.slow", title="Sum"), 1e-3)
    assert "  Sum float32, n=8 " in f"  {shown(base, new)[1]}".replace("\n", "\n  ")
    code, document = compared(base, new, "-k", "Sum or typo")
    assert ([case["name"] for case in document["cases"]], code) == (["Sum float32, n=8"], 0)
    assert document["notes"][0] == "-k: nothing matches typo"
    for run in (base, new):  # a title that two have tells nobody which
        run["benchmarks"].append(records.benchmark(records.case("b.other", title="Sum"), 1e-3))
    rows = shown(base, new)[1].partition("\nComparison\n")[2].splitlines()
    assert {row.split()[0] for row in rows if "float32" in row} == {"a.slow[float32-n=8]", "b.other[float32-n=8]"}


def test_without_a_terminal_no_line_is_folded_and_no_name_cut(shown, monkeypatch) -> None:
    name = "benchmarks/test_images.py::TestLinear::test_blur_of_an_image_with_a_long_name[kernel_size-1234567-0.25]"
    data = plain(run_file())
    data["benchmarks"][0]["fullname"] = f"{name}{name}"
    again = data | {"datetime": "2026-02-01T12:00:00+00:00"}
    monkeypatch.setenv("COLUMNS", "60")
    assert f"{name}{name}"[len("benchmarks/") :] in shown(data, again)[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = shown(data, again)[1]
    assert "1234567" in text
    assert "0.25" in text
