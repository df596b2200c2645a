"""Where a test puts its data: on the case's device, in its dtype, from the run's seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..devices import CPU, Device, find_device
from ..errors import GpubenchError, Unmeasurable, UsageError
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Check, Measurement, Process, Work
from ..runfile.utilisation import compute_dtype
from . import budget, disturbance, environment, verify as checking
from .budget import Preset, foresee
from .clock import DeviceClock, ReplayTimer
from .data import Data, bare_tensors, require_memory, tensors
from .precision import matmul_precision, torch_dtype
from .probes.accelerator import Flush, Peak, latency, probe
from .session import Session
from .variant import apply
from .verify import FIRST, Reference, prepare, unchecked
from .work import Counted, agree, count, flop_counter, require_least

if TYPE_CHECKING:
    import numpy
    import torch


class Inputs:
    """What a case is made on and from.

    ``device`` and ``dtype`` are torch's, to make tensors with; ``implementation`` and ``variant`` are names.
    ``data`` is whence all tensors of the case come, ``host`` makes data on the CPU, as transfers need. ``home`` is the
    device that the case is named for.
    """

    def __init__(self, session: Session, case: Case, home: Device) -> None:
        self._session = session
        self._plan = plan = session.settings.plan
        self.case = case
        self.home = home
        self.data = Data(home, torch_dtype(case.dtype), session.settings.seed, meta=plan)
        self.host = Data(CPU, torch_dtype(case.dtype), session.settings.seed, stream=1, meta=plan)
        self.randn = self.data.randn
        self.randint = self.data.randint
        self.empty = self.data.empty
        self.module = self.data.module

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @property
    def implementation(self) -> str:
        return self.case.implementation

    @property
    def variant(self) -> str:
        return self.case.variant

    @property
    def preset(self) -> str:
        return self._session.settings.preset

    @property
    def neighbour(self) -> Data:
        """Data on the next of the chosen accelerators of the same kind, to copy to."""
        chosen = [c.device for c in self._session.choices if c.device and c.device.kind == self.home.kind]
        there = chosen[(chosen.index(self.home) + 1) % len(chosen)]
        return Data(there, self.dtype, self._session.settings.seed, stream=2, meta=self._plan)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in page-locked host memory, from which a device copies by itself."""
        if self._plan:
            return tensor
        try:
            return tensor.pin_memory()
        except (RuntimeError, NotImplementedError) as error:
            raise Unmeasurable(f"no pinned memory for {self.home}: {error}") from error

    def numpy(self, tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
        """The tensor's own memory as a NumPy array; skips where NumPy has no such dtype."""
        import numpy as np
        import torch

        if self._plan:
            return np.broadcast_to(np.zeros((), dtype="f4"), tuple(tensor.shape))
        try:
            array: numpy.ndarray[Any, Any] = tensor.numpy()
        except TypeError as error:
            raise Unmeasurable(f"NumPy has no such dtype: {error}") from error
        assert torch.from_numpy(array).data_ptr() == tensor.data_ptr(), "NumPy got a copy, not the same memory"
        return array

    @property
    def first(self) -> bool:
        """Whether this process is the run's first, which counts the work and checks the answers."""
        return self._session.first

    def too_few(self, reason: str) -> GpubenchError:
        """What to raise when devices are wanting: an error where the case's kind is required, else a skip."""
        required = any(name.partition(":")[0] == self.home.kind for name in self._session.settings.required)
        return UsageError(f"required devices absent: {reason}") if required else Unmeasurable(reason)


# The ``gpubench`` fixture: check the answer, warm up, time with the waiting clock, label.


LONG_CALL = 0.01
"""Above so many seconds a call is its own round, and the rounds tell the latency."""
ENERGY_FROM = 0.05
"""Presets that spend less on a case (smoke) don't take the 0.3 s that an energy counter needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What several processes or devices found for one case.

    ``durations``: seconds of each round, of its slowest rank; ``iterations``: calls in each. ``flags``: what was wrong
    meanwhile.
    """

    durations: Sequence[float]
    iterations: int = 1
    devices: Sequence[str] = ()
    threads: int | None = None
    check: Check = field(default_factory=lambda: unchecked("not checked"))
    first_s: float = 0.0
    steps: int | None = None
    flags: Sequence[Flag] = ()


class Planned(Unmeasurable):
    """Raised instead of measuring when only a plan is wanted; ends the test."""


class Gpubench(Inputs):
    """What a test gets from the ``gpubench`` fixture: where to put its data, and, called, how it is measured.

    ``parallel`` is what a case of several devices has to say of itself; ``allowance`` how long it may take.
    """

    def __init__(
        self,
        session: Session,
        preset: Preset,
        case: Case,
        home: Device,
        clock: DeviceClock,
        benchmark: Any,
        replayed: ReplayTimer | None = None,
    ) -> None:
        # Before any data: what the device holds by then isn't the case's.
        self._flush = Flush(home) if case.cache == "cold" and not session.settings.plan else None
        self._peak = Peak(home) if not session.settings.plan else None
        super().__init__(session, case, home)
        self.allowance = preset
        self._benchmark = benchmark
        self._clock = clock
        self._replayed = replayed or ReplayTimer()
        self.called = False
        self.planned: dict[str, Any] | None = None
        self.parallel: dict[str, Any] = {}

    def __call__(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        flops: float | None = None,
        nbytes: float | None = None,
        items: float | None = None,
        unit: str = "element",
        check: Callable[..., Any] | bool = True,
        setup: Callable[[], Any] | None = None,
        devices: Iterable[str] = (),
        threads: int | None = None,
        steps: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Measure ``fn(*args, **kwargs)`` and return its result.

        ``flops``, ``nbytes``, ``items`` are the work of one call (see :class:`gpubench.runfile.schema.Work`). FLOPs are
        counted from the call where torch can; declared ones must agree with that.

        ``check``: ``True`` repeats the call in float64 on the CPU and compares; a callable is used instead of
        ``fn`` for that reference, with the same arguments; ``False`` records the case as unchecked.

        ``setup`` runs untimed before every round, of one call each, and may return ``(args, kwargs)`` for it.

        ``devices`` names further devices that the call uses: the clock waits for all of them. Those of the
        arguments and of the result are known without being named.

        ``threads`` is what the call can use when that isn't all (NumPy's elementwise work uses one).

        ``steps``: so many such calls make up the whole job; the report derives its total, and says that it did.

        Raises :class:`~gpubench.errors.WrongAnswer` and :class:`~gpubench.errors.WorkMismatch`; skips the test
        when it would exceed its budget or the memory.
        """
        self.called = True
        work = Work(flops, nbytes, items, unit)
        if threads is not None:
            self.case = structs.replace(self.case, threads=threads)
        with matmul_precision(self.case.dtype):
            if setup is not None and not args and not kwargs:
                example, named = _arguments(setup())
            else:
                example, named = args, kwargs
            # Done once, by the first process of a run; the others have no say in whether the case is sound.
            counted = count(fn, example, named) if self._session.first else None
            work = agree(work, counted)
            if self._plan:
                outputs = counted.output_bytes if counted else 0
                self.planned = foresee(
                    self.case,
                    work,
                    self.home,
                    self.allowance,
                    self._session.rates,
                    nbytes=self.data.allocated + outputs,
                    host_bytes=self.host.allocated,
                )
                raise Planned
            call = apply(self.case.variant, fn, self.home)
            further = [_here(name) for name in devices]
            self._use([*further, *self._devices_of(fn, example, named, further=further)])
            if counted is not None:
                require_memory(counted.output_bytes, self.home)
            seconds, why = self._session.rates.predict(work, self.home, self.case.dtype)
            budget.require(seconds, f"predicted: {why}", self.allowance, slack=budget.SLACK)
            expected = self._reference(check, fn, example, named, work, counted)
            result, first_s = self._first_call(call, example, named, expected)
            if isinstance(expected, Reference) and seconds is None and self._unknown_cost(first_s) > self._reference_s:
                expected = checking.unchecked(f"a float64 reference may take long: a call {first_s:.3g} s")
            outcome = expected.check(result) if isinstance(expected, Reference) else expected
            self._session.note_check(self.case, outcome)
            self._use(self._devices_of(result, further=further))
            del result, expected  # neither is part of the calls that follow
            again = partial(call, *example, **named) if setup is None else None
            if self._flush is not None:
                setup = self._flushing(setup)
            before = disturbance.look(self._clock.devices)  # from here on: a few rounds alone may be too short to tell
            call_s, round_s = self._warm_up(call, example, named, setup)
            budget.require(call_s, "seen in warm-up", self.allowance)
            if self._session.first and counted is None and again and work.flops and self.case.variant == "eager":
                # Not in the first call, which may prepare what the others need.
                with flop_counter() as counter:
                    again()
                require_least(work.flops, counter.get_total_flops())
            record: dict[str, Any] = {"first_call_s": first_s}  # of compile: compiling included
            if self.enabled and call_s < LONG_CALL and setup is None:
                record["latency_s"] = latency(lambda: call(*example, **named), self._clock)
            if self._peak:
                self._peak.reset()
            # A device's clocks have risen by now; they are not to fall again.
            before = dataclasses.replace(before, clocks=disturbance.look(self._clock.devices).clocks)
            result = self._rounds(call, args, kwargs, setup, call_s, round_s)
            for used in self._clock.devices:
                used.synchronize()
            raised = list(disturbance.disturbed(before, disturbance.look(self._clock.devices), self._session.threads))
            record["precision"] = environment.switches()
            record["memory_bytes"] = self._peak_bytes(counted)
            if self.enabled and self._session.first:
                read = {name: value for name, value in named.items() if name != "out"}
                record |= probe(
                    again,
                    self.home,
                    self._clock,
                    call_s=call_s,
                    flush=self._flush,
                    inputs=bare_tensors(example, read),
                    outputs=bare_tensors(result),
                    power=self.allowance.max_time >= ENERGY_FROM,
                )
        self._label(record, work, counted, outcome, raised, steps)
        self._flush = None  # pytest keeps the fixture, and with it as many bytes as the cache has
        return result

    def _peak_bytes(self, counted: Counted | None) -> int | None:
        """Counted by the device's allocator; on a CPU, which has none that counts, from the call's tensors."""
        if self.home.accelerator:
            return self._peak.bytes() if self._peak else None
        return counted.held_bytes + counted.peak_bytes if counted else None

    def replay(self, outcome: Outcome, work: Work) -> None:
        """Enter durations that other processes measured, round by round, as this case's times.

        They come through the case's timer, which is a :class:`~gpubench.measure.clock.ReplayTimer` in a test that
        asks for ``gpubench_ranks``. ``stats.data`` are exactly these durations over their iterations.
        """
        self.called = True
        devices, threads = tuple(outcome.devices), outcome.threads
        self.case = structs.replace(self.case, devices=devices, threads=threads)
        benchmark = self._benchmark
        benchmark.group = benchmark.group or self.case.workload
        if self.enabled:
            self._replayed.load(outcome.durations)
        rounds = len(outcome.durations) if self.enabled else 1
        benchmark.pedantic(lambda: None, rounds=rounds, iterations=outcome.iterations)
        record = {"first_call_s": outcome.first_s, "precision": environment.switches()}
        self._label(record, work, None, outcome.check, list(outcome.flags), outcome.steps)

    def plan(self, seconds: float) -> None:
        """Say what the case may take in all, where only a plan is wanted; ends the test."""
        if self._plan:
            self.planned = {"call_s": None, "case_s": seconds, "skip": None}
            raise Planned

    @property
    def enabled(self) -> bool:
        """Whether anything is timed at all: not with ``--benchmark-disable``."""
        return bool(getattr(self._benchmark, "enabled", False))

    def _devices_of(self, *values: Any, further: list[Device]) -> list[Device]:
        """Devices on which the tensors in these values live, all of them the case's own or named in ``devices``.

        Anything else is a mistake, or a transfer timed by accident. Single numbers may be on the CPU, as torch allows.
        """
        allowed = {str(self.home), *map(str, further)}
        found = {str(_here(str(t.device))) for t in tensors(values) if t.dim() and not t.is_meta}
        if strangers := sorted(found - allowed):
            raise UsageError(
                f"a tensor of this case is on {', '.join(strangers)}, not on {self.home}:"
                f" move it, or say devices={strangers!r} if that is what you measure"
            )
        return [_here(name) for name in sorted(found)]

    def _use(self, devices: Iterable[Device]) -> None:
        self._clock.use((self.home, *self._clock.devices, *devices))
        names = tuple(sorted({str(device) for device in self._clock.devices}))
        self.case = structs.replace(self.case, devices=names)

    def _reference(
        self,
        check: Callable[..., Any] | bool,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        work: Work,
        counted: Counted | None,
    ) -> Reference | Check:
        if not self._session.first:
            return checking.unchecked("checked by the run's first process")
        return prepare(
            check,
            fn,
            args,
            kwargs,
            work=work,
            counted=counted,
            precision=compute_dtype(self.case.dtype, self.case.variant),
            allowance=self._reference_s,
            rates=self._session.rates,
            torch_only=self.implementation == "torch",
        )

    @property
    def _reference_s(self) -> float:
        """Seconds that a float64 reference may take."""
        return self.allowance.check * (1 if self._session.was_checked(self.case) else FIRST)

    def _unknown_cost(self, first_s: float) -> float:
        """What a float64 reference may take when nothing is known but the first call: a CPU is slower than most."""
        return first_s * (50 if self.home.accelerator else 2)

    def _first_call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, expected: Any) -> Any:
        """Its result and seconds. If it is to be checked, ``out=`` is poisoned first."""
        if isinstance(expected, Reference):
            checking.poison(kwargs)
        start = self._clock()
        result = call(*args, **kwargs)
        return result, self._clock() - start

    def _flushing(self, setup: Callable[[], Any] | None) -> Callable[[], Any]:
        """A set-up that leaves the cache cold."""
        flush = self._flush
        assert flush is not None

        def flushed() -> Any:
            fresh = setup() if setup is not None else None
            flush()
            return fresh

        return flushed

    def _warm_up(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, setup: Callable[[], Any] | None
    ) -> tuple[float, float]:
        """Call until warm; seconds per call in the end, its share of the wait included, and with its set-up."""
        if not self.enabled:
            return 0.0, 0.0
        target = self.allowance.warmup * (2 if self.home.accelerator else 1)
        begin = self._clock()
        calls = 1
        while True:
            prepared = self._clock()
            if setup is not None and (fresh := setup()):
                args, kwargs = _arguments(fresh)
            start = self._clock()
            for _ in range(calls):
                call(*args, **kwargs)
            end = self._clock()
            if end - begin >= target:
                return (end - start) / calls, (end - prepared) / calls
            calls = 1 if setup is not None else min(2 * calls, 1000)

    def _rounds(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        setup: Callable[[], Any] | None,
        call_s: float,
        round_s: float,
    ) -> Any:
        benchmark, preset = self._benchmark, self.allowance
        few = budget.rounds(call_s, preset) if self.enabled else None
        benchmark.group = benchmark.group or self.case.workload
        if setup is not None:
            many = max(preset.min_rounds, min(1000, int(preset.max_time / max(round_s, 1e-6))))
            return benchmark.pedantic(call, args, kwargs, setup=setup, rounds=few or many)
        if few is not None:
            return benchmark.pedantic(call, args, kwargs, rounds=few)
        return benchmark(call, *args, **kwargs)

    def _label(
        self,
        record: dict[str, Any],
        work: Work,
        counted: Counted | None,
        outcome: Check,
        raised: list[Flag],
        steps: int | None,
    ) -> None:
        """Make the case's :class:`Measurement`; ``record`` holds the fields that were measured so far."""
        stats = getattr(self._benchmark, "stats", None)
        wait_s = sum(self._session.wait_s(device) for device in self._clock.devices)
        processes: tuple[Process, ...] = ()
        if stats is not None:
            median, iterations = stats.stats.median, stats.iterations
            if record.get("latency_s") is None and iterations == 1:
                record["latency_s"] = median
            if self._session.judges:
                raised += disturbance.uneven(stats.stats.data)
                raised += disturbance.short(median * iterations, wait_s)
            raised += self._session.doubt(self.case, work, median, counted)
            process = Process(
                index=self._session.settings.process,
                rounds=stats.stats.rounds,
                kept=min(stats.stats.rounds, SAMPLES_KEPT),
                iterations=iterations,
                median_s=median,
                iqr_s=stats.stats.iqr,
                latency_s=record.get("latency_s"),
                flags=tuple(raised),
            )
            processes = (process,)
        self._session.raised.extend((self.case, flag) for flag in raised)
        measured = {"work": work, "wait_s": wait_s, "steps": steps, "check": outcome, "processes": processes, **record}
        measurement = Measurement(**structs.asdict(self.case), **measured)
        # The case may go on adding to what it says of its devices: phases, losses.
        parallel = {"parallel": self.parallel} if self.parallel else {}
        self._benchmark.extra_info[KEY] = measurement.as_dict() | parallel


def _here(name: str) -> Device:
    """A device by name; raises :class:`Unmeasurable` when it is absent."""
    choice = find_device(name)
    if choice.device is None:
        raise Unmeasurable(str(choice.reason))
    return choice.device


def _arguments(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What ``setup`` returned: nothing, or the arguments of the round."""
    if not value:
        return (), {}
    args, kwargs = value
    return tuple(args), dict(kwargs)
