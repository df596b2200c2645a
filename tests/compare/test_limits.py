"""The most that a call may take, and what else than time is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import records
from suites import run_file

from gpubench.commands.cli import main


def limited(limit_s: float, median_s: float, spread: float | None = 0.01) -> dict:
    """A run of three processes of a benchmark, or one, and of five more benchmarks that no limit is set for."""
    data, medians = run_file(), [median_s * (1 + each * spread) for each in (-1, 0, 1)] if spread else [median_s]
    data["benchmarks"][0] = records.benchmark(records.case("a.fast", limit_s=limit_s), median_s, medians=medians)
    return data


@pytest.mark.parametrize(
    ("median_s", "spread", "code", "verdict"),
    [
        (2.2e-3, 0.01, 1, "above"), (2.01e-3, 0.01, 0, "perhaps above"), (1.99e-3, 0.01, 0, "perhaps above"),
        (2.2e-3, 0.2, 0, "perhaps above"), (1.8e-3, 0.01, 0, "below"),
        # a single process: as large a spread is assumed as for verdicts, 25 %
        (3e-3, None, 0, "perhaps above"), (8e-3, None, 1, "above"),
    ],
)  # fmt: skip
def test_only_what_is_above_its_limit_for_certain_fails(save, capsys, median_s, spread, code, verdict) -> None:
    files = [save(f"{name}.json", limited(2e-3, median_s, spread)) for name in ("base", "new")]
    Path(files[1]).write_text(json.dumps(json.loads(Path(files[1]).read_text()) | {"datetime": "another"}))
    assert main(["compare", *files, "--format=json"]) == code
    (limit,) = json.loads(capsys.readouterr().out)["limits"]
    assert (limit["verdict"], limit["limit_s"]) == (verdict, 2e-3)
    assert limit["low_s"] < limit["time_s"] < limit["high_s"]
    assert main(["compare", *files]) == code
    shown = capsys.readouterr().out
    assert ("1 above its limit" in shown) == (code == 1)
    assert ("Above the limit: " in shown, "Perhaps above the limit: " in shown) == (code == 1, "perhaps" in verdict)


def test_a_table_of_limits_chooses_as_k_does_and_the_smallest_counts(save, capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = save("base.json", limited(1.0, 1e-3)), save("new.json", limited(1.0, 1.001e-3))
    table = tmp_path / "pyproject.toml"
    table.write_text('[tool.gpubench.limits]\n"a.fast and n=8" = "0.5 ms"\n"a.fast or a.slow" = "10ms"\n')
    assert main(["compare", *files, "--format=json"]) == 1
    limits = {each["id"]: each for each in json.loads(capsys.readouterr().out)["limits"]}
    assert {name: (each["limit_s"], each["verdict"]) for name, each in limits.items()} == {
        "a.fast[float32-n=8]": (0.5e-3, "above"),
        "a.slow[float32-n=8]": (10e-3, "below"),
    }
    assert main(["compare", *files, "-k", "slow"]) == 0
    table.write_text('[tool.gpubench.limits]\n"a.fast" = "2 minutes"\n')
    assert main(["compare", *files]) == 2
    assert "[tool.gpubench.limits]: invalid time '2 minutes'" in capsys.readouterr().err
    table.write_text('[tool.gpubench]\nlimits = "2 ms"\n')
    assert main(["compare", *files]) == 2


@pytest.mark.parametrize(
    ("key", "words", "code", "says"),
    [
        ("a.fsat", [], 2, "limits not checked: 'a.fsat' matches no benchmark"),
        ("a.fsat", ["-k", "slow"], 2, "'a.fsat' matches no benchmark"),
        ("a", [], 2, "limits not checked: a.lost[float32-n=8] has no number (error: ValueError: mine)"),
        ("a", ["-k", "fast"], 0, "no slowdown proven"),
        ("gone", [], 2, "a.gone[float32-n=8] has no number (not in the results)"),
        ("gpu", [], 2, "'gpu' matches only what is skipped (a.gpu[float32-n=8])"),
        ("gpu or a.fast", [], 0, "no slowdown proven"),
        ("(", [], 2, "pyproject.toml: [tool.gpubench.limits] '(': expected a word"),
    ],
)
def test_a_limit_that_guards_nothing_is_two_and_named(
    save, capsys, tmp_path: Path, monkeypatch, key, words, code, says
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'[tool.gpubench.limits]\n"{key}" = "1 s"\n')
    base, new = run_file(names=("a.fast", "a.slow", "a.gone")), run_file(names=("a.fast", "a.slow")) | {"datetime": ""}
    new["gpubench"]["unmeasured"] = [
        records.unmeasured(records.case(name), status, reason)
        for name, status, reason in (("a.lost", "error", "ValueError: mine"), ("a.gpu", "skipped", "needs a GPU"))
    ]
    files = [save("base.json", base), save("new.json", new)]
    assert main(["compare", *files, *words]) == code
    shown = capsys.readouterr()
    assert says in shown.out + shown.err
    assert "-k" not in shown.err
    if "'(" not in says:
        assert main(["compare", *files, *words, "--format=json"]) == code
        assert bool(json.loads(capsys.readouterr().out)["unchecked"]) == (code == 2)


TEST = """
import pytest

@pytest.mark.gpubench(limit="{limit}")
def test_kernel(gpubench, machine):
    gpubench(lambda: machine.launch(2e-3))

@pytest.mark.gpubench(limit="1 s")
def test_plain(benchmark):
    benchmark(len, [])
"""


def test_a_limit_of_a_mark_is_kept_and_judged(pytester: pytest.Pytester, virtual, forking, capsys) -> None:
    """On a virtual device, where a call takes 2 ms exactly."""
    # Of unlike length, since Python tells a file by its size and second.
    for limit, code in (("2.50 ms", 0), ("0.1 ms", 1)):
        pytester.makepyfile(test_it=TEST.format(limit=limit))
        options = ["--gpubench-device=virtual", "--gpubench-no-ceilings", "--benchmark-max-time=0.02"]
        pytester.runpytest_subprocess(*options, f"--benchmark-json=run{code}.json").assert_outcomes(passed=2)
        run = json.loads((pytester.path / f"run{code}.json").read_text())
        (pytester.path / "copy.json").write_text(json.dumps(run | {"datetime": "another"}))
        assert main(["compare", str(pytester.path / f"run{code}.json"), str(pytester.path / "copy.json")]) == code
    capsys.readouterr()
    pytester.makepyfile(test_it=TEST.format(limit="fast"))
    result = pytester.runpytest_subprocess("--gpubench-device=virtual", "--benchmark-json=no.json")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_kernel: invalid time 'fast': write 10us or 0.5ms"])
