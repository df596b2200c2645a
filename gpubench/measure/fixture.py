"""The ``gpubench`` fixture. A call is a :class:`~.prepare.Plan`, which is prepared, timed, probed and recorded as a
:class:`~gpubench.runfile.schema.Measurement`."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from msgspec import convert, structs, to_builtins

from ..devices import CPU, Device, SimulatedDevice, find_device
from ..devices.implementations import TORCH, find_implementation
from ..devices.lazy import np, torch
from ..errors import GpubenchError, Unmeasurable, UsageError, WrongAnswer
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Check, Measurement, Parallel, Process, Work
from . import budget, calls, disturbance, environment, probes
from .clock import MIN_WAITS, DeviceClock, Share, levelled, medians, place_of, repeat, take_turns
from .data import Data, pinned_copy
from .precision import apply, autocast_dtype, computed_dtype, computing, matmul_precision, torch_dtype
from .prepare import Declared, Plan, Preparation, Prepared, Rounds, plan_rounds
from .session import Session
from .state import untraced
from .work import Request, declared, plain_number

LEFT_BEHIND = 1 << 28
"""Bytes allocated on an accelerator before a case above which garbage is collected: networks in reference cycles
outlive their case, and their memory would count as used by none, or by a later one."""
MOST_REMEASURED = 3
"""Most repetitions of the ceilings' measurement in a run."""
MMAP_THRESHOLD, PAGE, FAULT_S = 1 << 17, 4096, 1e-6
"""Bytes of a block above which a plain glibc returns it to the kernel, of a page, and most seconds of a page fault."""
PLAIN_WARM_S, PLAIN_CALLS_S, PLAIN_SHARE, PLAIN_GLANCE_S = 0.2, 0.1, 0.1, 0.02
"""Seconds of the first calls in a plain process, which aren't timed: its new threads may share a core at first, and
calls then take a hundred times as long. Seconds of the timed calls, the least share of a call that page faults could
take there, and the longest call of a glance: longer ones are networks, which the process would build anew."""
UNDECLARED = Declared()
_UNKNOWN = Work()


class Gpubench:
    """The value of the ``gpubench`` fixture: it makes a test's data and, when called, measures.

    ``device`` and ``dtype`` are torch's; ``implementation`` (``torch``, ``numpy``, …), ``variant`` (which the fixture
    applies to the call) and ``preset`` are names. ``xp`` is the module of the implementation ``library``, ``array``
    gives a tensor's values as its array, in the same memory where it can, and ``writes`` says whether it can write into
    a given one. ``data`` makes all tensors of the case, ``host`` the CPU tensors that transfers need. ``home`` is the
    device that names the case. ``first``: whether this process is the run's first, which counts the work and checks the
    results. ``parallel`` is added to the record of a case of several devices. ``allowance`` limits the case's time.
    """

    def __init__(
        self, session: Session, preset: budget.Preset, case: Case, home: Device, benchmark: Any,
        declared: Declared = UNDECLARED,
    ) -> None:  # fmt: skip
        if home.accelerator and case.implementation != TORCH:
            home.release_memory()
        # Before any data is made: memory in use by now isn't the case's.
        empty_cache = probes.flush(home) if case.cache == "cold" else None
        home.settle()
        if (home.allocated_memory() or 0) > LEFT_BEHIND:
            gc.collect()
        held_bytes, self._begun = home.allocated_memory(), disturbance.read_counters(())
        self._session, self.home, self.case = session, home, structs.replace(case, dtype=computing(case.dtype))
        self.implementation, self.variant = case.implementation, case.variant
        self.preset, self.first = session.settings.preset, session.settings.first
        self.library = find_implementation(case.implementation)(home, self.case.dtype)
        self.library.open(session.use_threads())
        self.data, self.host = self._data(home), self._data(CPU, stream=1)
        self.xp, self.writes, self.array = self.library.xp, self.library.writes, self.library.array
        self.dtype, self.empty, self.module = self.data.dtype, self.data.empty, self.data.module
        self.randn, self.rand, self.randint = self.data.randn, self.data.rand, self.data.randint
        least_s = max(preset.min_time, MIN_WAITS * session.rates.wait_s(home))
        self.allowance = dataclasses.replace(preset, min_time=least_s)
        self.clock, self._benchmark, self.enabled = DeviceClock([home]), benchmark, benchmark.enabled
        if self.library.asynchronous:
            self.clock.wait_by(home, self.library.wait)
        self.called, self.declared, self.parallel = False, declared, dict[str, Any]()
        self.declaration: Request | None = None  # of the next call
        rest = self.library, self.clock, self._begun, benchmark.fullname, declared, empty_cache, held_bytes
        data_dtype = None if case.dtype == self.case.dtype else case.dtype
        self._conditions: tuple[Any, ...] | None = (home, self.allowance, session, *rest, data_dtype, self.enabled)

    def _data(self, home: Device, stream: int = 0) -> Data:
        return Data(home, torch_dtype(self.case.dtype), self._session.settings.seed, stream=stream)

    @property
    def neighbour(self) -> Data:
        """Data on the next chosen accelerator of the same kind, as the target of copies."""
        chosen = [device for device in self._session.present() if device.kind == self.home.kind]
        return self._data(chosen[(chosen.index(self.home) + 1) % len(chosen)], stream=2)

    pinned = staticmethod(pinned_copy)

    @property
    def device(self) -> torch.device:
        """The torch device that this case uses."""
        return self.data.device

    def numpy(self, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return the tensor's own memory as a NumPy array; skips the test where NumPy has no such dtype."""
        return find_implementation("numpy")(CPU, self.case.dtype).array(tensor)  # type: ignore[no-any-return]

    def too_few(self, reason: str) -> GpubenchError:
        """Return the error for missing devices: a usage error where they are required, otherwise a skip."""
        required = any(name.partition(":")[0] == self.home.kind for name in self._session.settings.required)
        return UsageError(f"required devices absent: {reason}") if required else Unmeasurable(reason)

    def is_busy(self) -> bool:
        """Whether other programs used the cores when this process started, or have since the case began."""
        return self._session.is_busy(self._begun)

    def declare(  # noqa: PLR0913 - what users write
        self,
        *,
        flops: float | None = None,
        nbytes: float | None = None,
        items: float | None = None,
        unit: str = "element",
        check: Callable[..., Any] | bool | str = True,
        setup: Callable[[], Any] | None = None,
        devices: str | torch.device | Iterable[str | torch.device] = (),
        threads: int | None = None,
        steps: int | None = None,
    ) -> Gpubench:
        """Declare the work and the conditions of the next call, and return the fixture.

        - ``flops``, ``nbytes``, ``items``: the work of one call. FLOPs are counted from the call where
          torch can; declared ones must agree with the count. ``unit`` is the unit of the items.
        - ``check``: ``True`` repeats the call in float64 on the CPU and compares; a callable is used instead of the
          function for that reference, with the same arguments; ``False``, or a text with the reason, records the case
          as unchecked.
        - ``setup`` runs untimed before every round, of one call each, and returns ``None`` or ``(args, kwargs)`` for
          it.
        - ``devices`` names further devices that the call uses, for which the clock must wait too. The devices of
          arguments and result are found without being named.
        - ``threads``: how many the call can use, if not all (NumPy's elementwise work uses one).
        - ``steps``: how many such calls make up the whole job; the report derives and marks the total.

        Raises UsageError for an invalid amount, and for a second declaration before a call. A declaration without a
        call fails the test.
        """
        if self.declaration:
            raise UsageError("gpubench.declare(…) was said twice before a call: say all in one, then gpubench(f, x)")
        work = declared(Work(flops, nbytes, items, unit))
        threads, steps = plain_number("threads", threads, whole=True), plain_number("steps", steps, whole=True)
        if not (setup is None or callable(setup)):
            raise UsageError(f"setup must be a function, not {type(setup).__name__}")
        if not (isinstance(check, bool | str) or callable(check)):
            kind = type(check).__name__
            raise UsageError(f"check must be a function, True, False or a text with the reason, not {kind}")
        named = devices if isinstance(devices, Iterable) and not isinstance(devices, str) else (devices,)
        self.declaration = Request(None, (), {}, work, check, setup, tuple(map(str, named)), threads, steps)
        return self

    def take_declaration(self) -> Request:
        """Return the declaration of the call that begins now, which holds for no other."""
        declaration, self.declaration = self.declaration or Request(), None
        return declaration

    def require_no_declaration(self) -> None:
        """Raise UsageError for a declaration that no call has followed."""
        if self.declaration:
            raise UsageError("gpubench.declare(…) was said and no call followed: call gpubench(f, x) after it")

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Measure ``fn(*args, **kwargs)``, as the test has declared it, and return its result.

        Raises UsageError, :class:`~gpubench.errors.WrongAnswer` and :class:`~gpubench.errors.WorkMismatch`; skips the
        test when it would exceed its budget or the memory.
        """
        with self.conditions():
            if self._session.in_plain_process:
                return time_plainly(self._plan(fn, args, kwargs))
            prepared, share = self.prepare(fn, *args, **kwargs)
            if self.enabled:
                take_turns([share])
            return self.finish(prepared, share)

    @contextmanager
    def conditions(self) -> Iterator[None]:
        """A context in which the case's calls compute in its precision, unseen by tracers."""
        switches = nullcontext() if self.declared.own_switches else matmul_precision(self.case.dtype)
        with untraced(), switches:
            yield

    def prepare(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Prepared, Share]:
        """Return ``fn(*args, **kwargs)``, checked and warm, and its rounds, which the caller takes, perhaps in turn
        with other calls'. The case is final then."""
        preparation = Preparation(self._plan(fn, args, kwargs))
        try:
            prepared = preparation.run()
        finally:
            self.case = preparation.case
        return prepared, plan_rounds(prepared)

    def finish(self, prepared: Prepared, share: Share) -> Any:
        """Check, probe and record a call whose rounds have been taken, and return its result."""
        times, again = (share.times, share.calls) if self.enabled else ((), 1), prepared.again
        call = again or share.call_once
        result = self._benchmark.keep(*times, call, self.case.workload)
        if share.places:
            share.release()
            result = call()  # the last round's may be of a copy
        elif self.enabled and share.calls == 1:
            result = share.result
        rounds = _end_rounds(prepared, share, result)
        fields = _fields_of(prepared, rounds)
        if again and fields.keys() & {"device_s", "device_reason"}:
            result = again()  # a replayed graph has overwritten that of the rounds
        fields["launches"] = bool(prepared.counted and prepared.counted.operations)
        self._record(rounds, prepared.work, **fields)
        return result

    def _plan(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
        terms = self.take_declaration()
        if self._conditions is None:
            how = "for a call of each size write @pytest.mark.parametrize('n', [64, 4096])"
            many = "a test measures one gpubench(…) call, and this is its second"
            raise UsageError(f"{many}: {how}, or write another test")
        if not callable(fn):
            raise UsageError(f"expected a function: pass f and its arguments, not what f() returned ({fn!r:.40})")
        self.called = True
        if terms.threads is not None:
            self.case = structs.replace(self.case, threads=terms.threads)
        request = dataclasses.replace(terms, function=fn, args=args, kwargs=kwargs)
        return Plan(request, self.case, *self._conditions)

    def _record(self, rounds: Rounds, work: Work, **fields: Any) -> None:
        self._conditions = None  # pytest keeps the fixture, and the flush holds as many bytes as the cache
        record(self._session, self._benchmark, self.case, self.clock.devices, rounds, work, **fields)
        if self.parallel:
            known = {name: self.parallel[name] for name in Parallel.__struct_fields__ if name in self.parallel}
            self._benchmark.extra_info[KEY]["parallel"] = known

    def add_flag(self, flag: Flag) -> None:
        """Flag the result that was recorded."""
        for process in self._benchmark.extra_info.get(KEY, {}).get("processes", ())[:1]:
            process["flags"] = [*process["flags"], to_builtins(flag)]

    def replay(self, durations: Sequence[float], iterations: int, work: Work, rounds: Rounds, **fields: Any) -> None:
        """Record rounds that other processes measured as this case's. ``durations``: seconds of each round, of its
        slowest rank; ``iterations``: calls in each; ``fields``: further fields of the measurement."""
        self.called = True
        self.case = structs.replace(self.case, devices=fields.pop("devices"), threads=fields.pop("threads"))
        self._benchmark.keep(durations if self.enabled else (), iterations, lambda: None, self.case.workload)
        self._record(rounds, work, precision=_precision_of(self.home, self.case, self.declared), **fields)

    def take_over(self, durations: Sequence[float], calls: int, record: dict[str, Any]) -> None:
        """Keep the seconds of rounds, of so many calls each, and the record that another session has written."""
        self.called, self.parallel = True, record["parallel"]
        self._benchmark.keep(durations if self.enabled else (), calls, lambda: None, self.case.workload)
        self._benchmark.extra_info[KEY] = record
        self._session.raised += [(self.case, flag) for flag in convert(record["processes"][0]["flags"], list[Flag])]


def _end_rounds(prepared: Prepared, share: Share, result: Any) -> Rounds:
    plan, given = prepared.plan, prepared.given
    for device in plan.clock.devices:
        device.synchronize()
    after = disturbance.read_counters(plan.clock.devices)  # before the check, during which an accelerator's clocks fall
    changed = given.changed() if given else []
    check = _check_last(prepared, result)
    before = dataclasses.replace(prepared.before, clocks=share.clocks)
    known = {flag.name for flag in share.flags}  # also of calls that were timed in turn
    seen = () if plan.home.simulated else disturbance.disturbed(before, after)
    share.flags += [flag for flag in seen if flag.name not in known]
    flags = (*share.flags, *calls.altered([] if plan.declared.writing else changed))
    blocks = tuple(share.blocks)
    placed, spread = blocks if share.places else (), blocks if share.seconds else ()
    return Rounds(flags, check, result, share.latency_s, share.cpu_s, placed, spread, share.unplaced)


def _check_last(prepared: Prepared, result: Any) -> Check:
    """Check a later result too, for a race or a stale cache, unless the call or its copy changes it each time."""
    plan, expected = prepared.plan, prepared.expected
    if expected is None or prepared.again is None or not plan.times:
        return prepared.check
    reason = "the call draws random numbers" if expected.seen.random else ""
    try:
        if not reason:
            expected.check_last(result)
    except WrongAnswer:
        reason = expected.why_another(partial(plan.copy, prepared.call))
        if not reason:
            raise
    reasons = [prepared.check.reason, f"the first result alone: {reason}" if reason else None]
    return structs.replace(prepared.check, reason="; ".join(filter(None, reasons)) or None)


def _fields_of(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    """Return the fields of a measurement that aren't of its rounds; probes are made now, once in a run."""
    plan, counted = prepared.plan, prepared.counted
    fields: dict[str, Any] = {} if prepared.data_dtype is None else {"dtype": prepared.data_dtype}
    if counted and counted.flops:
        fields["convolution_share"] = counted.convolution_flops / counted.flops
    fields |= {"first_call_s": prepared.first_s, "steps": plan.request.steps, "uncounted": prepared.uncounted or None}
    fields |= {"memory_bytes": _memory(prepared), "precision": _precision_of(plan.home, prepared.case, plan.declared)}
    return fields | _probe(prepared, rounds) if plan.times and plan.session.settings.first else fields


def _precision_of(home: Device, case: Case, declared: Declared) -> dict[str, Any]:
    autocast = {"autocast": autocast_dtype(home)} if case.variant == "autocast" else {}
    own = {"own_switches": True} if declared.own_switches and case.dtype == "tf32" else {}
    return environment.switches() | {"tf32": case.dtype == "tf32"} | autocast | own


def _probe(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    plan, again = prepared.plan, prepared.again
    record: dict[str, Any] = {"plain_s": _plain_seconds(prepared)}
    if len(plan.clock.devices) == 1:  # with several devices copying is the work itself
        named = {name: value for name, value in prepared.call.kwargs.items() if name != "out"}
        function, inputs = plan.request.function, (prepared.call.args, named)
        if inputs_of := calls.attribute(calls.attribute(function, "__self__"), "inputs_of"):  # of a step, its batch
            inputs = inputs_of(function.__name__)
        record["transfer"] = None if inputs is None else probes.transfer(inputs, rounds.result, plan.home)
    single = sum(used.accelerator for used in plan.clock.devices) < 2
    if plan.home.accelerator:  # afterwards: calls of a compiled function write over its last result
        record |= _device_time(prepared, single)
    # Energy is counted over many calls in a row, whose cache is hot: a second for each call.
    if plan.session.settings.preset == "full" and again and single and plan.flush is None:
        record["energy_j"] = probes.energy(again, plan.home, plan.clock, prepared.call_s, budget.ENERGY_S)
    return record


def time_plainly(plan: Plan) -> Any:
    """Time a few calls, and nothing else: no probe has raised the thresholds of glibc before. Return a result."""
    args, kwargs = plan.arguments()
    function = plan.library.prepared(apply(plan.case.variant, plan.request.function, plan.home), args, kwargs)
    time_for = partial(repeat, lambda: function(*args, **kwargs), Device.now, most=100_000)
    time_for(least=1, seconds=PLAIN_WARM_S)
    plan.session.plain_s = statistics.median(time_for(least=5, seconds=PLAIN_CALLS_S))
    return function(*args, **kwargs)


def _plain_seconds(prepared: Prepared) -> float | None:
    """Return the seconds of a call in a process that returns freed memory, if its page faults can matter."""
    plan, counted, process = prepared.plan, prepared.counted, prepared.plan.session.plain_process
    if process is None or counted is None or not plan.repeats or plan.home.accelerator:
        return None
    if plan.preset.name == "glance" and prepared.call_s > PLAIN_GLANCE_S:
        return None
    made, faults_s = counted.memory_bytes - counted.input_bytes, counted.moved_bytes / PAGE * FAULT_S
    if made < MMAP_THRESHOLD or faults_s < PLAIN_SHARE * prepared.call_s or prepared.case.variant != "eager":
        return None
    return process.seconds(plan.name, plan.session.use_threads())  # type: ignore[no-any-return]


def _device_time(prepared: Prepared, single: bool) -> dict[str, Any]:
    plan, again = prepared.plan, prepared.again
    if isinstance(plan.home, SimulatedDevice):
        return dict(zip(("device_s", "launch_s"), plan.home.modelled_s(prepared.call.function), strict=True))
    if again is None:
        return {"device_reason": "the case sets up before every call"}
    if prepared.case.implementation != TORCH:
        return {"device_reason": f"{plan.library.label} queues its work on a stream of its own"}
    if not single:
        return {"device_reason": "the call uses several devices"}
    launches = prepared.counted.operations if prepared.counted else 1
    return probes.device_time(again, plan.home, prepared.call_s, plan.flush, launches)._asdict()


def _memory(prepared: Prepared) -> int | None:
    """Return the most bytes that the case held at once: by the device's allocator or, on a CPU, the call's tensors."""
    plan, counted = prepared.plan, prepared.counted
    if not plan.home.accelerator:
        return counted.memory_bytes if counted else None
    if prepared.peak_bytes is None or plan.held_bytes is None or prepared.case.implementation != TORCH:
        return None  # another library has its own allocator
    used, workspace = prepared.peak_bytes - plan.held_bytes, plan.home.workspace_bytes()
    has_products = counted and (counted.flops or 0.0) > counted.convolution_flops
    if counted and has_products:  # whose workspace is released after each, and no memory of the call's tensors
        used = max(min(used, counted.memory_bytes), used - workspace)
    return max(0, used)


def record(
    session: Session, benchmark: Any, case: Case, devices: Sequence[Device], rounds: Rounds, work: Work = _UNKNOWN,
    *, launches: bool = False, **fields: Any,
) -> None:  # fmt: skip
    """Judge the rounds that pytest-benchmark keeps, and write the case's measurement beside them. ``devices`` were
    waited for; ``launches``: whether a call launches anything; ``fields`` were measured besides the rounds."""
    raised, stats, settings = [*rounds.flags], benchmark.stats, session.settings
    wait_s, latency_s = sum(session.rates.wait_s(device) for device in devices), rounds.latency_s
    if stats is not None:
        times, calls = stats.stats, stats.iterations
        if not times.min <= times.median <= times.max:
            raise UsageError("its median is none of its times: a test has replaced what computes it")
        if latency_s is None and calls == 1:
            latency_s = times.median
        if settings.flags_rounds:
            blocks = rounds.placed or rounds.spread
            level = levelled(times.data, blocks, int if rounds.spread else place_of) if blocks else times.data
            raised += disturbance.noise_flags(level)
            raised += disturbance.too_short_flags(times.median * calls, times.median, wait_s)
        if launches or work.flops or work.bytes:
            share = fields.get("convolution_share") or 0.0
            raised += implausible_flags(session, case, work, times.median, launches, share)
        on_core = 0 < rounds.cpu_s < math.inf and not any(device.accelerator for device in devices)
        process = Process(
            settings.process, times.rounds, times.median, min(times.rounds, SAMPLES_KEPT), calls, times.iqr, latency_s,
            tuple(raised), rounds.cpu_s if on_core else None, tuple(medians(times.data, rounds.placed).values()),
            rounds.unplaced or None, tuple(medians(times.data, rounds.spread, int).values()),
        )  # fmt: skip
        fields["processes"] = (process,)
    session.raised.extend((case, flag) for flag in raised)
    fields |= {"work": work, "latency_s": latency_s, "check": rounds.check}
    benchmark.extra_info[KEY] = Measurement(**structs.asdict(case) | fields).as_dict()


def implausible_flags(
    session: Session, case: Case, work: Work, seconds: float, launches: bool = False, convolutions: float = 0.0
) -> list[Flag]:
    """Return ``implausible`` if the case exceeds its device's ceilings, even after they were measured once more.
    ``convolutions``: their share of the FLOPs. A CPU isn't judged if the thread canary was slow, because its ceilings
    are then too low themselves."""
    chosen = find_device(case.device).device
    used = [each.accelerator for name in case.devices if (each := find_device(name).device)]
    if not (session.settings.flags_rounds and session.times) or sum(used) > 1:
        return []  # ceilings are those of one device
    if not any(used) and any(disturbance.slow_threads(session.check_machine().canary)):
        return []
    dtype = computed_dtype(case, chosen) if chosen else case.dtype
    terms = launches and case.implementation == TORCH, convolutions, len({*used}) > 1
    session.measure_ceilings()
    if (known := session.ceilings.get(case.device)) is None:
        return []
    flags = list(disturbance.impossible(work, seconds, dtype, known, *terms))
    if flags and chosen and session.remeasured < MOST_REMEASURED:
        session.remeasured += 1
        # Products of this dtype alone: others take half a dozen seconds each where a CPU emulates them.
        doubted = {chosen: known.throughput.keys() & {dtype}}
        again = probes.measure_ceilings(doubted, session.settings.effort, session.notices.append)
        session.ceilings[case.device] = known = known.raised(again.get(case.device, known))
        flags = list(disturbance.impossible(work, seconds, dtype, known, *terms))
    return flags
