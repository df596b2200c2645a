"""The ``gpubench`` fixture: check the answer, warm up, time with the waiting clock, label."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..devices import CPU, Device, device as find_device
from ..errors import GpubenchError, OverBudget, TooLarge, Unmeasurable, UsageError
from ..schema import KEY, SAMPLES_KEPT, Case, Work
from . import budget, check as checking
from .budget import Preset
from .clock import DeviceClock
from .data import Data, require_memory, tensors
from .precision import matmul_precision, torch_dtype
from .probes.latency import latency
from .replay import Outcome, ReplayTimer
from .session import Session
from .variant import apply
from .work import Counted, agree, count

if TYPE_CHECKING:
    import numpy
    import torch

LONG_CALL = 0.01
"""Above so many seconds a call is its own round, and the rounds tell the latency."""


COMPILE_S = 15.0
"""What torch.compile has been seen to take for a small network on two cores."""


class Planned(Unmeasurable):
    """Raised instead of measuring when only a plan is wanted; ends the test."""


class Gpubench:
    """What a test gets from the ``gpubench`` fixture: where to put its data, and how to be measured.

    ``device`` and ``dtype`` are torch's, to make tensors with; ``implementation`` and ``variant`` are names.
    ``host`` makes data on the CPU, as transfers need.
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
        self._session = session
        self._preset = preset
        self._benchmark = benchmark
        self._clock = clock
        self._replayed = replayed or ReplayTimer()
        self._home = home
        self._plan = plan = session.asked.plan
        self.case = case
        self.called = False
        self.planned: dict[str, Any] | None = None
        self.parallel: dict[str, Any] = {}
        self._data = Data(home, torch_dtype(case.dtype), session.asked.seed, meta=plan)
        self.host = Data(CPU, torch_dtype(case.dtype), session.asked.seed, stream=1, meta=plan)
        self.randn = self._data.randn
        self.randint = self._data.randint
        self.empty = self._data.empty
        self.module = self._data.module

    @property
    def device(self) -> torch.device:
        return self._data.device

    @property
    def data(self) -> Data:
        """Whence all tensors of this case come, for code that makes its own from the same seed."""
        return self._data

    @property
    def home(self) -> Device:
        """The device that the case is named for."""
        return self._home

    @property
    def allowance(self) -> Preset:
        """How long the case may take."""
        return self._preset

    @property
    def enabled(self) -> bool:
        """Whether anything is timed at all: not with ``--benchmark-disable``."""
        return self._enabled

    def too_few(self, reason: str) -> GpubenchError:
        """What to raise when devices are wanting: an error where the case's kind is required, else a skip."""
        required = any(name.partition(":")[0] == self._home.kind.name for name in self._session.asked.required)
        return UsageError(f"required devices absent: {reason}") if required else Unmeasurable(reason)

    @property
    def first(self) -> bool:
        """Whether this process is the run's first, which counts the work and checks the answers."""
        return self._session.first

    @property
    def dtype(self) -> torch.dtype:
        return self._data.dtype

    @property
    def implementation(self) -> str:
        return self.case.implementation

    @property
    def variant(self) -> str:
        return self.case.variant

    @property
    def preset(self) -> str:
        return self._session.asked.preset

    @property
    def neighbour(self) -> Data:
        """Data on the next of the chosen accelerators of the same kind, to copy to."""
        chosen = [c.device for c in self._session.choices if c.device and c.device.kind is self._home.kind]
        there = chosen[(chosen.index(self._home) + 1) % len(chosen)]
        return Data(there, self.dtype, self._session.asked.seed, stream=2, meta=self._plan)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in page-locked host memory, from which a device copies by itself."""
        if self._plan:
            return tensor
        try:
            return tensor.pin_memory()
        except (RuntimeError, NotImplementedError) as error:
            raise Unmeasurable(f"no pinned memory for {self._home}: {error}") from error

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

        ``flops``, ``nbytes``, ``items`` are the work of one call (see :class:`gpubench.schema.Work`). FLOPs are
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
            self.case = dataclasses.replace(self.case, threads=threads)
        with matmul_precision(self.case.dtype):
            if setup is not None and not args and not kwargs:
                example, named = _arguments(setup())
            else:
                example, named = args, kwargs
            # Done once, by the first process of a run; the others have no say in whether the case is sound.
            counted = count(fn, example, named) if self._session.first else None
            work = agree(work, counted)
            if self._plan:
                self._record_plan(work, counted)
            call = apply(self.case.variant, fn, self._home.kind.name)
            further = [_here(name) for name in devices]
            self._use([*further, *self._devices_of(fn, example, named, further=further)])
            seconds, why = self._session.rates.predict(work, self._home, self.case.dtype)
            budget.require(seconds, f"predicted: {why}", self._preset, slack=budget.SLACK)
            if counted is not None:
                require_memory(counted.output_bytes, self._home)
            inputs, outcome = self._copies(check, fn, example, named, work, counted)
            result, first_s = self._timed(call, example, named)
            if inputs and seconds is None and self._unknown_cost(first_s) > self._preset.check:
                inputs, outcome = None, checking.unchecked(f"a float64 reference may take long: a call {first_s:.3g} s")
            if inputs:
                sizes = checking.elements(example, named), checking.elements(result)
                allowed = checking.tolerance(self._precision, work.flops, *sizes)
                outcome = checking.compare(result, checking.reference(*inputs), allowed)
            self._use(self._devices_of(result, further=further))
            del result, inputs
            call_s = self._warm_up(call, example, named, setup)
            budget.require(call_s, "seen in warm-up", self._preset)
            latency_s = None
            if self._enabled and call_s < LONG_CALL and setup is None:
                latency_s = latency(lambda: call(*example, **named), self._clock, call_s)
            result = self._rounds(call, args, kwargs, setup, call_s)
            for used in self._clock.devices:
                used.synchronize()
        self._label(work, outcome, latency_s, first_s, steps)
        return result

    def replay(self, outcome: Outcome, work: Work) -> None:
        """Enter durations that other processes measured, round by round, as this case's times.

        They come through the case's timer, which is a :class:`~gpubench.measure.replay.ReplayTimer` in a test that
        asks for ``gpubench_ranks``. ``stats.data`` are exactly these durations over their iterations.
        """
        self.called = True
        devices, threads = tuple(outcome.devices), outcome.threads
        self.case = dataclasses.replace(self.case, devices=devices, threads=threads)
        benchmark = self._benchmark
        benchmark.group = benchmark.group or self.case.workload
        if self._enabled:
            self._replayed.load(outcome.durations)
        rounds = len(outcome.durations) if self._enabled else 1
        benchmark.pedantic(lambda: None, rounds=rounds, iterations=outcome.iterations)
        self._label(work, outcome.check, None, outcome.first_s, outcome.steps)

    def plan(self, seconds: float) -> None:
        """Say what the case may take in all, where only a plan is wanted; ends the test."""
        if self._plan:
            self.planned = {"call_s": None, "case_s": seconds, "skip": None}
            raise Planned

    @property
    def _enabled(self) -> bool:
        return bool(getattr(self._benchmark, "enabled", False))

    @property
    def _precision(self) -> str:
        """The dtype whose rounding to expect."""
        return "bfloat16" if self.case.variant == "autocast" else self.case.dtype

    def _devices_of(self, *values: Any, further: list[Device]) -> list[Device]:
        """Devices on which the tensors in these values live, all of them the case's own or named in ``devices``.

        Anything else is a mistake, or a transfer timed by accident. Single numbers may be on the CPU, as torch allows.
        """
        allowed = {str(self._home), *map(str, further)}
        found = {str(_here(str(t.device))) for t in tensors(values) if t.dim() and not t.is_meta}
        if strangers := sorted(found - allowed):
            raise UsageError(
                f"a tensor of this case is on {', '.join(strangers)}, not on {self._home}:"
                f" move it, or say devices={strangers!r} if that is what you measure"
            )
        return [_here(name) for name in sorted(found)]

    def _use(self, devices: Iterable[Device]) -> None:
        self._clock.use((self._home, *self._clock.devices, *devices))
        names = tuple(sorted({str(device) for device in self._clock.devices}))
        self.case = dataclasses.replace(self.case, devices=names)

    def _copies(
        self,
        check: Callable[..., Any] | bool,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        work: Work,
        counted: Counted | None,
    ) -> tuple[tuple[Any, Any, Any] | None, checking.Check]:
        """The reference's function and float64 copies of its arguments, or why there will be no reference.

        Made before the first call, which may change its arguments.
        """
        if not self._session.first:
            return None, checking.unchecked("checked by the run's first process")
        if check is False:
            return None, checking.unchecked("the case asks for no check")
        if check is True and not tensors(args, kwargs, fn) and self.implementation == "torch":
            return None, checking.unchecked("no tensor among the arguments to repeat the call with")
        seconds, why = self._session.rates.predict(work, CPU, "float64")
        if seconds is not None and 2 * seconds > self._preset.check:
            return None, checking.unchecked(f"a float64 reference would take too long: {why}")
        # Twice the bytes in float64, and room for intermediate results of the outputs' size.
        size = 2 * sum(t.nbytes for t in tensors(args, kwargs, fn)) + 8 * (counted.output_bytes if counted else 0)
        try:
            require_memory(size, CPU)
        except TooLarge as error:
            return None, checking.unchecked(f"a float64 reference would not fit: {error}")
        function = checking.in_float64(fn) if check is True else check
        return (function, checking.in_float64(args), checking.in_float64(dict(kwargs))), checking.Check("pending")

    def _unknown_cost(self, first_s: float) -> float:
        """What a float64 reference may take when nothing is known but the first call: a CPU is slower than most."""
        return first_s * (50 if self._home.accelerator else 2)

    def _timed(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> tuple[Any, float]:
        start = self._clock()
        result = call(*args, **kwargs)
        return result, self._clock() - start

    def _warm_up(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, setup: Callable[[], Any] | None
    ) -> float:
        """Call until warm; seconds per call in the end, its share of the wait included."""
        if not self._enabled:
            return 0.0
        target = self._preset.warmup * (2 if self._home.accelerator else 1)
        begin = self._clock()
        calls = 1
        while True:
            if setup is not None and (fresh := setup()):
                args, kwargs = _arguments(fresh)
            start = self._clock()
            for _ in range(calls):
                call(*args, **kwargs)
            end = self._clock()
            if end - begin >= target:
                return (end - start) / calls
            calls = 1 if setup is not None else min(2 * calls, 1000)

    def _rounds(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Any,
        setup: Callable[[], Any] | None,
        call_s: float,
    ) -> Any:
        benchmark, preset = self._benchmark, self._preset
        few = budget.rounds(call_s, preset) if self._enabled else None
        benchmark.group = benchmark.group or self.case.workload
        if setup is not None:
            many = max(preset.min_rounds, min(1000, int(preset.max_time / max(call_s, 1e-6))))
            return benchmark.pedantic(call, args, kwargs, setup=setup, rounds=few or many)
        if few is not None:
            return benchmark.pedantic(call, args, kwargs, rounds=few)
        return benchmark(call, *args, **kwargs)

    def _label(
        self, work: Work, outcome: checking.Check, latency_s: float | None, first_s: float, steps: int | None
    ) -> None:
        stats = getattr(self._benchmark, "stats", None)
        record = self.case.as_dict() | {
            "work": dataclasses.asdict(work),
            "wait_s": sum(self._session.wait_s(device) for device in self._clock.devices),
            "check": outcome.as_dict(),
            "first_call_s": first_s,  # with variant compile: compiling included
            "steps": steps,
        }
        if stats is not None:
            if latency_s is None and stats.iterations == 1:
                latency_s = stats.stats.median
            record["processes"] = [
                {
                    "process": self._session.asked.process,
                    "rounds": stats.stats.rounds,
                    "kept": min(stats.stats.rounds, SAMPLES_KEPT),
                    "iterations": stats.iterations,
                    "median_s": stats.stats.median,
                    "iqr_s": stats.stats.iqr,
                    "latency_s": latency_s,
                }
            ]
        record["latency_s"] = latency_s
        if self.parallel:
            record["parallel"] = self.parallel
        self._benchmark.extra_info[KEY] = record

    def _record_plan(self, work: Work, counted: Counted | None) -> None:
        preset = self._preset
        seconds, why = self._session.rates.predict(work, self._home, self.case.dtype)
        plan: dict[str, Any] = {"call_s": seconds, "case_s": preset.typical, "skip": None}
        try:
            outputs = counted.output_bytes if counted else 0
            require_memory(self._data.allocated + outputs, self._home)
            require_memory(self.host.allocated, CPU)
            budget.require(seconds, f"predicted: {why}", preset, slack=budget.SLACK)
        except (TooLarge, OverBudget) as error:
            plan |= {"skip": str(error), "case_s": 0.0}
        else:
            if seconds is not None:
                plan["case_s"] = max(preset.typical, (preset.min_rounds + 2) * seconds + preset.warmup)
            if self.case.variant == "compile":
                plan["case_s"] += COMPILE_S
        self.planned = plan
        raise Planned


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
