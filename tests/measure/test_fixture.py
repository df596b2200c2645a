"""What the ``gpubench`` fixture checks, counts, refuses and records, on the CPU."""

import json

import pytest

from gpubench.measure import budget
from gpubench.runfile.reader import read
from gpubench.testing import VirtualMachine

HEADER = """
import torch, pytest, numpy as np
"""


@pytest.fixture
def measure(pytester):
    """Run one test file under the smoke preset; gives pytest's result and the run file, or ``None``."""

    def run(source, *options):
        pytester.makepyfile(test_it=HEADER + source)
        path = pytester.path / "run.json"
        result = pytester.runpytest_inprocess(
            "--gpubench-preset=smoke",
            "--gpubench-device=cpu",
            "--gpubench-no-ceilings",
            "--benchmark-json=run.json",
            "-rs",
            *options,
        )
        return result, json.loads(path.read_text()) if path.exists() else None

    return run


def only(run):
    (bench,) = run["benchmarks"]
    return bench["extra_info"]["gpubench"], bench["stats"]


KEEP = """
def test_keep(gpubench):
    gpubench(torch.neg, gpubench.randn(8))
"""


def unmeasured(run, name):
    (row,) = [row for row in run["gpubench"]["unmeasured"] if row["name"].startswith(name)]
    return row


def test_records_identity_work_and_check(measure):
    _, run = measure("""
@pytest.mark.parametrize("n", [16])
@pytest.mark.gpubench(size="n")
def test_mm(gpubench, n):
    a = gpubench.randn(n, n)
    gpubench(torch.mm, a, a, nbytes=3 * a.nbytes, items=n, unit="row")
""")
    record, stats = only(run)
    assert record["id"] == "it.mm[float32-n=16]"
    assert (record["workload"], record["device"], record["params"], record["size"]) == ("it.mm", "cpu", {"n": 16}, "n")
    operators = [{"kind": "product", "count": 1, "flops": 2.0 * 16**3, "bytes": 3072.0}]
    assert record["work"] == {"flops": 2.0 * 16**3, "bytes": 3072, "items": 16, "unit": "row", "operators": operators}
    assert (record["transfer"]["in_bytes"], record["transfer"]["out_bytes"]) == (1024, 1024)
    assert record["check"]["status"] == "passed"
    assert 0 < record["check"]["error"] < record["check"]["tolerance"] < 1e-5
    assert record["processes"][0]["rounds"] == stats["rounds"] == len(stats["data"])
    assert record["latency_s"] > 0
    assert run["gpubench"]["schema_version"] == 1
    assert run["machine_info"]["gpubench"]["devices"][0]["name"] == "cpu"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("gpubench(lambda x: x + 1e-3, x, check=lambda x: x)", "relative error"),
        ("gpubench(lambda x, out: out, x, gpubench.empty(64), check=lambda x, out: x)", "never written"),
        ("gpubench(lambda x: x[:3], x, check=lambda x: x)", "shape"),
        ("gpubench(lambda x: (x, x), x, check=lambda x: x)", "outputs"),
    ],
)
def test_a_wrong_answer_is_a_failed_case_and_never_a_number(measure, call, says):
    result, run = measure(f"{KEEP}\ndef test_wrong(gpubench):\n    x = gpubench.randn(64)\n    {call}\n")
    result.assert_outcomes(passed=1, failed=1)
    assert [b["name"] for b in run["benchmarks"]] == ["test_keep[cpu-float32]"]
    row = unmeasured(run, "test_wrong")
    assert row["status"] == "error"
    assert says in row["reason"]
    assert row["workload"] == "it.wrong"


def test_what_a_case_declares_is_checked_before_it_runs_and_the_file_stays_readable(measure, pytester):
    bad = {
        "items": ["0", "-1", "2.5", "'many'", "torch.ones(3)", "float('nan')"],
        "flops": ["0", "'many'", "np.ones(2)", "10**5000"],
        "nbytes": ["-4096", "float('inf')"],
        "threads": ["0", "1.5"],
        "steps": ["0", "'two'"],
        "unit": ["5"],
    }
    cases = [(name, value) for name, texts in bad.items() for value in texts]
    tests = "".join(
        f"def test_bad_{place:02}(gpubench):\n    gpubench(never, gpubench.randn(4), {name}={value})\n"
        for place, (name, value) in enumerate(cases)
    )
    result, run = measure(f"""
def never(x):
    assert False, "was called"
def test_good(gpubench):
    x = gpubench.randn(3, 4)
    gpubench(torch.neg, x, items=np.prod(x.shape), nbytes=torch.tensor(96), steps=np.int64(3))
{tests}""")
    result.assert_outcomes(passed=1, failed=len(cases))
    record, _ = only(run)
    assert (record["work"]["items"], record["work"]["bytes"], record["steps"]) == (12, 96, 3)
    for place, (name, _value) in enumerate(cases):
        assert unmeasured(run, f"test_bad_{place:02}")["reason"].startswith(f"UsageError: {name} must be ")
    assert len(read(pytester.path / "run.json").results) == 1 + len(cases)


def test_flops_off_by_two_are_an_error(measure):
    result, run = measure(
        KEEP
        + """
def test_half(gpubench):
    a = gpubench.randn(16, 16)
    gpubench(torch.mm, a, a, flops=16**3)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    assert "4096 FLOP declared, 8192 counted" in unmeasured(run, "test_half")["reason"]


def test_a_closure_cant_declare_fewer_flops_than_it_runs(measure):
    _, run = measure("""
def test_least(gpubench):
    x = gpubench.randn(64, 64)
    gpubench(lambda: x @ x, flops=1)
def test_right(gpubench):
    x = gpubench.randn(64, 64)
    made = []
    def call():
        made.append(x @ x) if not made else None  # prepared once
        return x @ made[0]
    gpubench(call, flops=2 * 64**3)
""")
    assert unmeasured(run, "test_least")["reason"].startswith("WorkMismatch: 1 FLOP declared, 524288 or more counted")
    ours, _ = only(run)
    assert (ours["work"]["flops"], ours["check"]["status"]) == (2 * 64**3, "unchecked")


def test_attention_and_modules_are_counted(measure):
    _, run = measure("""
def test_attention(gpubench):
    q = gpubench.randn(1, 2, 8, 4)
    gpubench(torch.nn.functional.scaled_dot_product_attention, q, q, q)
""")
    record, _ = only(run)
    assert record["work"]["flops"] == 2 * 2 * (2 * 8 * 8 * 4)


def test_a_case_over_its_budget_is_skipped_with_the_prediction(measure):
    result, run = measure(
        KEEP
        + """
def test_estimated(gpubench):
    def never(x):
        assert x.is_meta, "was called for real"
    gpubench(never, gpubench.randn(4), flops=1e18)

def test_seen(gpubench):
    import time
    gpubench(lambda x: x.is_meta or time.sleep(0.8), gpubench.randn(4), check=False)
"""
    )
    result.assert_outcomes(passed=1, skipped=2)
    assert "estimated: 1.00 EFLOP at" in unmeasured(run, "test_estimated")["reason"]
    assert "one call takes 80" in unmeasured(run, "test_seen")["reason"]
    assert unmeasured(run, "test_seen")["status"] == "skipped"


@pytest.mark.parametrize(("estimated_s", "calls"), [(0.9, 1), (0.5, 2)])
def test_a_case_that_may_just_fit_ends_with_a_first_call_that_says_no(virtual, monkeypatch, estimated_s, calls):
    """Smoke allows 2 s for three calls. One of 2 s is warmed up only where the estimate gave it a chance."""
    planned = budget.Estimate(estimated_s, estimated_s)
    monkeypatch.setattr(budget, "estimate", lambda *_, **__: planned)
    launch, made = VirtualMachine.launch, []
    monkeypatch.setattr(VirtualMachine, "launch", lambda *given: made.append(launch(*given)))
    source = "def test_it(gpubench, machine): gpubench(machine.launch, 2.0, check=False)"
    _, run = virtual(source, "--gpubench-preset=smoke", skipped=1)
    (row,) = run["gpubench"]["unmeasured"]
    assert ("first call" in row["reason"]) == (calls == 1)
    assert len(made) == calls


def test_a_case_too_large_for_the_memory_is_skipped_with_both_numbers(measure):
    _, run = measure(
        KEEP
        + """
def test_huge(gpubench):
    gpubench(torch.neg, gpubench.randn(10**14))
"""
    )
    reason = unmeasured(run, "test_huge")["reason"]
    assert reason.startswith("needs 400 TB more on cpu")
    assert "are free" in reason


def test_a_huge_output_is_predicted_too(measure):
    _, run = measure(
        KEEP
        + """
def test_outer(gpubench):
    x = gpubench.randn(10**6)
    gpubench(torch.outer, x, x)
"""
    )
    assert "needs 4.00 TB more" in unmeasured(run, "test_outer")["reason"]


def test_out_of_memory_has_its_status_and_the_next_case_runs(measure):
    result, run = measure("""
def allocate(x):
    return torch.empty(2**50)

def test_a(gpubench):
    gpubench(allocate, gpubench.randn(4), check=False)

def test_b(gpubench):
    gpubench(torch.neg, gpubench.randn(4))
""")
    result.assert_outcomes(failed=1, passed=1)
    assert unmeasured(run, "test_a")["status"] == "oom"


def test_a_case_that_fails_after_timing_gives_no_number(measure):
    _, run = measure(
        KEEP
        + """
def test_late(gpubench):
    gpubench(torch.neg, gpubench.randn(4))
    assert False, "late"
"""
    )
    assert [b["name"] for b in run["benchmarks"]] == ["test_keep[cpu-float32]"]
    assert "late" in unmeasured(run, "test_late")["reason"]


def test_inplace_and_out_forms_are_checked_on_fresh_copies(measure):
    result, run = measure("""
def test_inplace(gpubench):
    gpubench(torch.Tensor.add_, gpubench.randn(64), gpubench.randn(64))

def test_out(gpubench):
    gpubench(torch.add, gpubench.randn(64), gpubench.randn(64), out=gpubench.empty(64))
""")
    result.assert_outcomes(passed=2)
    assert {b["extra_info"]["gpubench"]["check"]["status"] for b in run["benchmarks"]} == {"passed"}


def test_setup_runs_before_each_round_and_brings_its_arguments(measure):
    result, run = measure("""
def test_setup(gpubench):
    made = []
    def fresh():
        made.append(1)
        return (torch.ones(4),), {}
    seen = []
    def use(x):
        assert x.sum() == 4
        seen.append(1)
        return x.zero_()
    gpubench(use, setup=fresh, check=False)
    assert len(made) >= len(seen) > 3
""")
    result.assert_outcomes(passed=1)
    assert only(run)[1]["iterations"] == 1


def test_numpy_shares_the_memory(measure):
    result, _ = measure("""
@pytest.mark.gpubench(implementations=["torch", "numpy"], dtypes=["float32", "bfloat16"])
def test_neg(gpubench):
    x = gpubench.randn(64)
    if gpubench.implementation == "numpy":
        array = gpubench.numpy(x)
        x[0] = 7
        assert array[0] == 7
        gpubench(np.negative, array, threads=1)
    else:
        gpubench(torch.neg, x)
""")
    result.assert_outcomes(passed=3)  # there is no bfloat16 in NumPy


def test_a_tensor_on_a_strange_device_is_refused(virtual):
    source = """
        import torch
        def test_stranger(gpubench):
            gpubench(torch.neg, torch.ones(4))
    """
    result, _ = virtual(source, failed=1)
    result.stdout.fnmatch_lines(["*a tensor of this case is on cpu, not on virtual:0: move it, or say*"])


def test_samples_are_thinned_evenly_and_statistics_keep_all_of_them(measure):
    _, run = measure(KEEP, "--benchmark-min-rounds=500", "--benchmark-max-time=0.5")
    record, stats = only(run)
    assert stats["rounds"] >= 500
    assert len(stats["data"]) == record["processes"][0]["kept"] == 200
    from gpubench.plugin.recorder import thin

    assert thin(list(range(1000)))[:3] == [0, 5, 10]
    assert thin(list(range(1000)))[-1] == 999
    assert thin([1.0, 2.0]) == [1.0, 2.0]


def test_autocast_runs_in_bfloat16_and_is_a_case_of_its_own(measure):
    _, run = measure("""
@pytest.mark.gpubench(variants=["eager", "autocast", "compile"])
def test_linear(gpubench):
    network = gpubench.module(lambda: torch.nn.Linear(8, 8))
    with torch.inference_mode():
        result = gpubench(network, gpubench.randn(2, 8))
    assert result.dtype == (torch.bfloat16 if gpubench.variant == "autocast" else torch.float32)
""")
    assert [b["extra_info"]["gpubench"]["variant"] for b in run["benchmarks"]] == ["eager", "autocast"]


def test_training_steps_and_complex_results_are_checked_too(measure):
    result, run = measure("""
def step(network, x):
    network(x).sum().backward()
    return x.grad

def test_step(gpubench):
    gpubench(step, gpubench.module(lambda: torch.nn.Linear(4, 4)), gpubench.randn(2, 4).requires_grad_())

def test_fft(gpubench):
    gpubench(torch.fft.fft, gpubench.randn(64))
""")
    result.assert_outcomes(passed=2)
    assert {b["extra_info"]["gpubench"]["check"]["status"] for b in run["benchmarks"]} == {"passed"}


def test_a_closure_that_cant_be_repeated_says_what_to_do(measure):
    _, run = measure(
        KEEP
        + """
def test_closure(gpubench):
    network = gpubench.module(lambda: torch.nn.Linear(4, 4))
    gpubench(lambda x: network(x), gpubench.randn(2, 4))
"""
    )
    reason = unmeasured(run, "test_closure")["reason"]
    assert "can't be repeated in float64" in reason
    assert "pass modules and tensors as arguments" in reason


def test_a_failed_cases_tensors_are_freed(pytester, forking):
    pytester.makepyfile(
        test_it="""
        import gc, torch, weakref

        seen = []

        def test_fails(gpubench):
            x = gpubench.randn(1000)
            seen.append(weakref.ref(x))
            gc.disable()
            gpubench(torch.neg, x, check=torch.abs)

        def test_freed():
            gc.enable()
            assert seen[0]() is None
        """
    )
    pytester.runpytest_subprocess("--gpubench-preset=smoke").assert_outcomes(failed=1, passed=1)
