"""The ``gpubench`` fixture. A call goes through seven steps: prepare, estimate, verify, warm up, run rounds, probe,
record. Each adds to the one object what it finds out."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import re
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from msgspec import convert, structs, to_builtins

from ..devices import CPU, Device, find_device
from ..devices.cpu import cache_sizes
from ..devices.implementations import TORCH, find_implementation
from ..devices.lazy import np, torch
from ..errors import GpubenchError, Unmeasurable, UsageError, WrongAnswer
from ..runfile.flags import Flag
from ..runfile.options import DTYPES
from ..runfile.schema import KEY, Case, Check, Transfer, Work
from . import budget, calls, disturbance, environment
from .budget import Preset
from .clock import MIN_WAITS, DeviceClock, Share, repeat, take_turns, until_clocks_stand, warm_up
from .copies import CallCopy, Uncopyable, copy_call, restored_random_streams
from .data import Data, dtypes_of, is_lazy, pinned_copy, poison, tensors, uncompiled
from .placements import COPYING_SHARE, PLACEMENTS, ROUNDS_EACH, USUAL_CACHE, Bound, Placements
from .precision import (
    apply,
    autocast_dtype,
    computed_dtype,
    computing,
    matmul_precision,
    pass_on_broad_switch,
    torch_dtype,
)
from .probes import device_time, energy, flush, latency, transfer
from .session import Session
from .state import untraced
from .verify import FIRST, Reference, coarsest, prepare_reference, too_long, unchecked
from .work import Call, Counted, Declaration, Request, agree, count, count_real, declared, observe, plain_number

LEFT_BEHIND = 1 << 28
"""Bytes allocated on an accelerator before a case above which garbage is collected: networks in reference cycles
outlive their case, and their memory would count as used by none, or by a later one."""
MMAP_THRESHOLD, PAGE, FAULT_S = 1 << 17, 4096, 1e-6
"""Bytes of a block above which a plain glibc returns it to the kernel, of a page, and most seconds of a page fault."""
PLAIN_CALLS_S, PLAIN_SHARE = 0.05, 0.1
"""Seconds of the calls in a plain process, and the least share of a call that page faults could take there."""
LONG_CALL = 0.01
"""A call that takes longer than this, in seconds, is a whole round: the median of the rounds is its latency."""


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """The test's declarations: whether it names its dtypes, whether its call writes into its arguments, whether it is
    measured with the program's own switches of float32 products, and whether garbage is collected within a round."""

    dtype: bool = False
    writing: bool = False
    own_switches: bool = False
    collects: bool = False


class RoundKeeper(Protocol):
    """Keeps a benchmark's rounds for the table and the results file; ``stats`` are their statistics."""

    enabled: bool
    """Whether anything is timed at all: false with ``--benchmark-disable``."""
    fullname: str
    extra_info: dict[str, Any]
    stats: Any

    def keep(self, durations: Sequence[float], calls: int, call: Callable[[], Any], group: str) -> Any:
        """Keep the seconds of rounds of so many calls, and return the result of a further ``call``."""


_FALLBACK = re.compile("fall(ing)? ?back (to run on|from XPU to|to) (the )?CPU", re.IGNORECASE)
"""How torch says that it computes an operator of an accelerator on the CPU."""
_INDICES = {"int64", "int32", "bool"}
"""Dtypes of places and masks beside the data."""
_NARROW = "float8", "float4"
"""How the names of dtypes begin whose numbers have scales beside them."""


class Gpubench:
    """The value of the ``gpubench`` fixture: it makes a test's data and, when called, measures.

    ``device`` and ``dtype`` are torch's, for making tensors; ``implementation`` (``torch``, ``numpy``, …), ``variant``
    (which the fixture applies to the call) and ``preset`` are names. ``library`` is that implementation on the case's
    device, ``xp`` its module, ``array`` the function that gives a tensor's values as its array, in the same memory
    where it can, and ``writes`` whether it can write into a given one. ``data`` makes all tensors of the case, ``host``
    makes the CPU tensors that transfers need. ``home`` is the device that the case is named after. ``first``: whether
    this process is the run's first, which counts the work and checks the results. ``parallel`` is what a case of
    several devices adds to its record. ``allowance`` sets how long the case may take.
    """

    def __init__(
        self,
        session: Session,
        preset: Preset,
        case: Case,
        home: Device,
        benchmark: RoundKeeper,
        declared: Declared = Declared(),
    ) -> None:
        if home.accelerator and case.implementation != TORCH:
            home.release_memory()
        # Before any data is made: memory in use by now isn't the case's.
        self._flush = flush(home) if case.cache == "cold" else None
        home.settle()
        if (home.allocated_memory() or 0) > LEFT_BEHIND:
            gc.collect()
        self._held_bytes, self._begun = home.allocated_memory(), disturbance.look(())
        self._peak_bytes: int | None = None
        self._session, self.home, self.case = session, home, structs.replace(case, dtype=computing(case.dtype))
        self.implementation, self.variant = case.implementation, case.variant
        self.preset, self.first = session.settings.preset, session.first
        self.library = find_implementation(case.implementation)(home, self.case.dtype)
        self.library.open(session.threads)
        self.data, self.host = self._data(home), self._data(CPU, stream=1)
        self.xp, self.writes, self.array = self.library.xp, self.library.writes, self.library.array
        self.dtype, self.empty, self.module = self.data.dtype, self.data.empty, self.data.module
        self.randn, self.rand, self.randint = self.data.randn, self.data.rand, self.data.randint
        least_s = max(preset.min_time, MIN_WAITS * session.rates.wait_s(home))
        self.allowance = dataclasses.replace(preset, min_time=least_s)
        self.clock, self._benchmark = DeviceClock([home]), benchmark
        if self.library.asynchronous:
            self.clock.wait_by(home, self.library.wait)
        self._family = case.workload, case.device, case.dtype, case.implementation, case.variant
        """Equal for cases that differ only in size, of which checking one is nearly as good as checking all."""
        self.enabled = benchmark.enabled
        self.called = self._recorded = False
        self.declaration: Declaration | None = None
        """What is declared of the next call."""
        self._data_dtype = case.dtype if case.dtype != self.case.dtype else None
        self.declared = declared
        self.parallel: dict[str, Any] = {}

    def _data(self, home: Device, stream: int = 0) -> Data:
        return Data(home, torch_dtype(self.case.dtype), self._session.settings.seed, stream=stream)

    @property
    def neighbour(self) -> Data:
        """Data on the next chosen accelerator of the same kind, as the target of copies."""
        chosen = [c.device for c in self._session.choices if c.device and c.device.kind == self.home.kind]
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
        """Return the error for missing devices: a usage error where devices of this kind are required, otherwise a
        skip."""
        required = any(name.partition(":")[0] == self.home.kind for name in self._session.settings.required)
        return UsageError(f"required devices absent: {reason}") if required else Unmeasurable(reason)

    def is_busy(self) -> bool:
        """Return whether other programs used the cores when this process started, or have since the case began."""
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
        devices: str | Iterable[str] = (),
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
        names = (devices,) if isinstance(devices, str) else tuple(map(str, devices))
        self.declaration = Declaration(work, check, setup, names, threads, steps)
        return self

    def take_declaration(self) -> Declaration:
        """Return the declaration of the call that begins now, which holds for no other."""
        declaration, self.declaration = self.declaration or Declaration(), None
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
                return self._time_plainly(self._request(fn, args, kwargs))
            call, share = self.prepare(fn, *args, **kwargs)
            if self.enabled:
                take_turns([share], self.halfway)
            return self.finish(call, share)

    @contextmanager
    def conditions(self) -> Iterator[None]:
        """A context in which the case's calls compute in its precision, unseen by tracers."""
        with untraced(), nullcontext() if self.declared.own_switches else matmul_precision(self.case.dtype):
            yield

    def prepare(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Call, Share]:
        """Return ``fn(*args, **kwargs)``, checked and warm, and its rounds, which the caller takes, perhaps in turn
        with those of other calls."""
        call = self._prepare(self._request(fn, args, kwargs))
        self._verify(call, self._estimate(call))
        if self._session.settings.brief and not self._spreads:
            self._measure_peaks()  # not before: a first call that fails needs none
        self._warm_up(call)
        share = self._share(call)
        if self.enabled and call.call_s < LONG_CALL and call.again and self._flush is None:
            call.latency_s = latency(call.again, self.clock)
        # The device's clocks have risen by now; from here on they must not fall.
        call.before = dataclasses.replace(call.before, clocks=disturbance.look(self.clock.devices).clocks)
        return call, share

    def finish(self, call: Call, share: Share) -> Any:
        """Check, probe and record a call whose rounds have been taken, and return its result."""
        self._end_rounds(call, share)
        probed = self._probe(call)
        if probed.keys() & {"device_s", "device_reason"} and call.again:
            call.result = call.again()  # a replayed graph has overwritten that of the rounds
        self._flush = None  # pytest keeps the fixture, and the flush holds as many bytes as the cache
        measured: dict[str, Any] = {"first_call_s": call.first_s, "latency_s": call.latency_s, **self._memory(call)}
        measured |= {"cpu_s": share.cpu_s, "uncounted": call.uncounted or None, "unplaced": call.unplaced}
        measured |= {"placed_blocks": share.blocks if share.placements else ()}
        measured |= {"spread_blocks": share.blocks if share.seconds else ()}
        self._record(
            call.work, call.counted, call.flags, check=call.check, steps=call.request.steps, **measured, **probed
        )
        return call.result

    def _request(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        terms = self.take_declaration()
        if self._recorded:
            how = "for a call of each size write @pytest.mark.parametrize('n', [64, 4096])"
            raise UsageError(
                f"a test measures one gpubench(…) call, and this is its second: {how}, or write another test"
            )
        if not callable(fn):
            raise UsageError(f"expected a function: pass f and its arguments, not what f() returned ({fn!r:.40})")
        self.called = True
        if terms.threads is not None:
            self.case = structs.replace(self.case, threads=terms.threads)
        return Request(fn, args, kwargs, terms.work, terms.check, terms.setup, terms.devices, terms.steps)

    # The seven steps ----------------------------------------------------------------------------------------------

    def _prepare(self, request: Request) -> Call:
        """Make the clock wait for all devices that are named or hold the call's tensors."""
        _require_finished(request.function)
        args, kwargs = request.arguments()
        if is_lazy(request.function, args, kwargs):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._session.settings.seed)
                request.function(*args, **kwargs)  # it makes the parameters
        self._name_dtype(dtypes_of((request.function, getattr(request.function, "__self__", None), args, kwargs)))
        further = tuple(map(_present, request.devices))
        self._use([*further, *self._devices_of(request.function, args, kwargs, further=further)])
        return Call(request, args, kwargs, request.work, further=further)

    def _name_dtype(self, found: set[str]) -> None:
        """Name the case by the dtype of its data. Raises UsageError where the test or the user has chosen another."""
        own = "float32" if self.case.dtype == "tf32" else self.case.dtype
        narrow = {each for each in found if each.startswith(_NARROW)}  # their scales have more digits
        numbers = narrow or {coarsest(found, own)} - {""} or found - _INDICES or found
        if own in (found if self.declared.dtype else numbers) or len(numbers) > 1:
            return
        if self.declared.dtype and not numbers.intersection(DTYPES):
            return
        name = next(iter(numbers), "")
        if self.declared.dtype:
            place = "" if self._session.settings.brief else "gpubench."
            how = f"make it with {place}randn() or dtype={place}dtype"
            raise UsageError(f"the data is {name}, not {own}: {how}")
        if name or self._session.settings.brief:
            self._data_dtype = name  # if nothing here computes in it, it is taken for the dtype of its rounding
            self.case = structs.replace(self.case, dtype=computing(name))

    def _follow_switches(self, counted: Counted | None) -> None:
        """Compute as in TF32, but name the case float32, where the program's switches shorten the call's products on
        its device. PyTorch's own default shortens convolutions and recurrent layers only."""
        if self.case.dtype != "float32" or not self.home.accelerator or self.home.lacks("tf32"):
            return
        pass_on_broad_switch()
        switches = environment.switches()
        products_alone = counted and counted.products_alone
        if switches["tf32_matmul"] or (switches["tf32_cudnn"] and not products_alone):
            self._data_dtype = self._data_dtype or "float32"
            self.case = structs.replace(self.case, dtype="tf32")

    def _estimate(self, call: Call) -> float | None:
        """Return the estimated seconds of a call, if its work is declared. Raises Unmeasurable for too much time."""
        terms = self.allowance, self._session.rates, self.is_busy()
        return budget.estimate(self.case, call.work, self.home, *terms)

    def _verify(self, call: Call, estimated_s: float | None) -> None:
        """Make the first call and compare its result with the reference, which is made before it."""
        request = call.request
        function = apply(self.case.variant, request.function, self.home)
        function = self.library.prepared(function, call.args, call.kwargs)
        modelled: list[Counted] = []
        watch = partial(observe, request, self.home, computed_dtype(self.case, self.home), modelled.append)
        call.function = self.home.stand_in(function, watch)
        expected = self._reference(call)
        if isinstance(expected, Reference):
            poison(call.kwargs.get("out"), call.args, call.kwargs)
        result = self._first_call(call, estimated_s, modelled)
        if isinstance(expected, Reference):
            expected = self._affordable(call, expected)
        try:
            call.check = expected.check(result) if isinstance(expected, Reference) else expected
        except WrongAnswer as error:
            if request.check is not True:
                raise
            brief = self._session.settings.brief
            how = "gpubench.declare(check=…) takes a reference or False"
            how = "gpubench.time(…, check=False) in Python times it" if brief else how
            raise WrongAnswer(f"{error}; if it is right, {how}") from None
        if call.check.status == "passed":
            self._session.checked.add(self._family)
            call.expected = expected
        self._use(self._devices_of(result, further=call.further))

    def _first_call(self, call: Call, estimated_s: float | None, modelled: list[Counted]) -> Any:
        """Make the first call, and return its result; take the work that a simulated device counted, or count that of
        a copy."""
        call.given = calls.Given(call.request.function, call.args, call.kwargs) if call.request.setup is None else None
        copied = self._copy(call) if call.request.setup else None  # the call may change what its setup gave it
        self.home.reset_peak_memory()
        start = self.clock()
        with _refused_fallbacks() if self.home.accelerator else nullcontext():
            result = call.function(*call.args, **call.kwargs)
        call.first_s = self.clock() - start
        if call.given:
            call.given.changed()  # a cache may be filled once
        _require_finished(call.request.function, result)
        if self.case.variant == "eager" and budget.FEWEST_ROUNDS * (estimated_s or 0.0) > self.allowance.budget:
            # It was tried since the estimate may be wrong; this call confirms the estimate.
            how, busy = "seen in its first call", self.is_busy()
            budget.require(call.first_s, how, self.allowance, slack=budget.SLACK, busy=busy)
        if self.case.variant == "graph":  # its memory is allocated while it is captured, and replays allocate none
            self._peak_bytes = self.home.peak_memory()
        if modelled:
            self._take_count(call, modelled[0])
        elif budget.FEWEST_ROUNDS * call.first_s <= budget.SLACK * self.allowance.budget:
            self._take_count(call, self._count(call, copied))
        return result

    def _warm_up(self, call: Call) -> None:
        """Call until warm. The machine is watched from here on, since a few short rounds may be too short to judge."""
        call.before = disturbance.look(self.clock.devices)
        self.home.reset_peak_memory()  # forget what was only needed to prepare the calls
        call.call_s, call.round_s = self._warm_seconds(call)
        # Not the peak of the rounds: some keep a call's result during the next one.
        self._peak_bytes = max(filter(None, (self._peak_bytes, self.home.peak_memory())), default=None)
        setup_s = 0.0 if call.request.setup is None else call.round_s - call.call_s
        budget.require(call.call_s, "seen in warm-up", self.allowance, setup_s=setup_s, busy=self.is_busy())
        if self._counts and call.counted is None:
            self._take_count(call, self._count(call) or self._count_real(call))

    @property
    def _counts(self) -> bool:
        """Whether the work of a call is counted: once, by the first process of a run."""
        return (self.first or self.home.simulated) and self.case.implementation == TORCH

    def _copied_bytes(self) -> int | None:
        """Return the most bytes that a copy of a call may take, a quarter of the free memory; None if unknown."""
        memory = [device.memory() for device in {self.home, CPU}]
        limit = min((each.free for each in memory if each is not None), default=None)
        return limit and limit // 4

    def _copy(self, call: Call) -> CallCopy | None:
        """Return a copy of a call to count its work by; None, with the reason, where there is none."""
        if not self._counts or self.home.simulated:
            return None
        try:
            limit = self._copied_bytes()
            return copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
        except Uncopyable as error:
            call.uncounted = str(error)
            return None

    def _count(self, call: Call, copied: CallCopy | None = None) -> Counted | None:
        """Return the work of a copy of the call; None, with the reason, where it can't be made."""
        copied = copied or (self._copy(call) if call.request.setup is None else None)
        try:
            return count(copied, self.clock.devices) if copied else None
        except Exception as error:  # the copied call fails: it isn't a copy
            call.uncounted = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            return None

    def _count_real(self, call: Call) -> Counted | None:
        try:  # not in the first call, which may prepare what the others need
            return count_real(call.request, self.clock.devices)
        except Unmeasurable as error:
            call.uncounted = str(error)
            return None

    def _take_count(self, call: Call, counted: Counted | None) -> None:
        if counted is None:
            return
        call.counted, call.work, call.uncounted = counted, agree(call.request.work, counted), ""
        if self.declared.own_switches:
            self._follow_switches(counted)

    def _end_rounds(self, call: Call, share: Share) -> None:
        """Keep the rounds, and compare the machine before and after."""
        call.result = self._keep(share)
        for device in self.clock.devices:
            device.synchronize()
        after = disturbance.look(self.clock.devices)  # before the check, during which an accelerator's clocks fall
        changed = call.given.changed() if call.given else []
        self._check_last(call)
        flags = () if self.home.simulated else tuple(disturbance.disturbed(call.before, after))
        call.flags = (*share.note(flags), *calls.altered([] if self.declared.writing else changed))

    def _check_last(self, call: Call) -> None:
        """Check a later result too, for a race or a stale cache. Another one may be right if the call draws random
        numbers, or if its copy gives other results when it is repeated."""
        if call.expected is None or call.again is None or not self.enabled:
            return
        reason = "the call draws random numbers" if call.expected.seen.random else ""
        try:
            if not reason:
                call.expected.check_last(call.result)
        except WrongAnswer:
            request, limit = call.request, self._copied_bytes()
            copy = partial(copy_call, request.function, call.args, call.kwargs, limit_bytes=limit)
            reason = call.expected.why_another(copy)
            if not reason:
                raise
        if reason:
            call.check = structs.replace(call.check, reason=f"the first result alone: {reason}")

    def _probe(self, call: Call) -> dict[str, Any]:
        """Measure the other fields of the record: the precision in force and, once in a run, what needs a probe."""
        record: dict[str, Any] = {"precision": self._precision()}
        if not (self.enabled and self.first):
            return record
        single = sum(used.accelerator for used in self.clock.devices) < 2
        record["plain_s"] = self._plain_seconds(call)
        if len(self.clock.devices) == 1:  # with several devices copying is the work itself
            record["transfer"] = self._transfer(call)
        if self.home.accelerator:  # afterwards: calls of a compiled function write over its last result
            record |= self._device_time(call, single)
        # Energy is counted over many calls in a row, whose cache is hot.
        if call.again and single and self._flush is None and self.preset == "full":  # a second for each call
            record["energy_j"] = energy(call.again, self.home, self.clock, call.call_s, budget.ENERGY_S)
        return record

    def _time_plainly(self, request: Request) -> Any:
        """Time a few calls, and nothing else: no probe has raised the thresholds of glibc before."""
        args, kwargs = request.arguments()
        function = self.library.prepared(apply(self.case.variant, request.function, self.home), args, kwargs)
        times = repeat(lambda: function(*args, **kwargs), perf_counter, least=5, most=1000, seconds=PLAIN_CALLS_S)
        self._session.plain_s = statistics.median(times[len(times) // 5 :])
        return function(*args, **kwargs)

    def _plain_seconds(self, call: Call) -> float | None:
        """Return the seconds of a call in a process that returns freed memory, if its page faults can matter."""
        counted, plain = call.counted, self._session.plain_process
        if plain is None or counted is None or call.again is None or self.home.accelerator or self._flush is not None:
            return None
        made = counted.memory_bytes - counted.input_bytes
        faults_s = counted.moved_bytes / PAGE * FAULT_S
        if made < MMAP_THRESHOLD or faults_s < PLAIN_SHARE * call.call_s or self.case.variant != "eager":
            return None
        return plain.seconds(self._benchmark.fullname, self._session.threads)  # type: ignore[no-any-return]

    def _device_time(self, call: Call, single: bool) -> dict[str, Any]:
        if modelled := self.home.modelled_s(call.function):
            return dict(zip(("device_s", "launch_s"), modelled, strict=True))
        if call.again is None:
            return {"device_reason": "the case sets up before every call"}
        if self.case.implementation != TORCH:
            return {"device_reason": f"{self.library.label} queues its work on a stream of its own"}
        if not single:
            return {"device_reason": "the call uses several devices"}
        launches = call.counted.operations if call.counted else 1
        return device_time(call.again, self.home, call.call_s, self._flush, launches)._asdict()

    def _transfer(self, call: Call) -> Transfer | None:
        """Time the copies of the arguments, or of what the call's object says that it reads, as a step its batch."""
        function = call.request.function
        inputs_of = getattr(getattr(function, "__self__", None), "inputs_of", None)
        named = {name: value for name, value in call.kwargs.items() if name != "out"}
        inputs = (call.args, named) if inputs_of is None else inputs_of(function.__name__)
        return None if inputs is None else transfer(inputs, call.result, self.home)

    def _record(self, work: Work, counted: Counted | None, flags: Iterable[Flag], **fields: Any) -> None:
        if self._data_dtype is not None:
            fields["dtype"] = self._data_dtype
        if counted and counted.flops:
            fields["convolution_share"] = counted.convolution_flops / counted.flops
        launches = bool(counted and counted.operations)
        self._recorded = True
        self._session.record(self._benchmark, self.case, self.clock.devices, flags, work, launches, **fields)
        if self.parallel:  # the test may still add to it: phases, losses
            self._benchmark.extra_info[KEY]["parallel"] = self.parallel

    def add_flag(self, flag: Flag) -> None:
        """Flag the result that was recorded."""
        for process in self._benchmark.extra_info.get(KEY, {}).get("processes", ())[:1]:
            process["flags"] = [*process["flags"], to_builtins(flag)]

    def replay(
        self, durations: Sequence[float], iterations: int, work: Work, flags: Iterable[Flag], **record: Any
    ) -> None:
        """Record durations that other processes measured, round by round, as this case's times. ``durations``: seconds
        of each round, of its slowest rank; ``iterations``: calls in each; ``flags``: what was wrong meanwhile;
        ``record``: further fields of the :class:`Measurement`."""
        self.called = True
        self.case = structs.replace(self.case, devices=record.pop("devices"), threads=record.pop("threads"))
        self._benchmark.keep(durations if self.enabled else (), iterations, lambda: None, self.case.workload)
        self._record(work, None, flags, precision=self._precision(), **record)

    def take_over(self, durations: Sequence[float], calls: int, record: dict[str, Any]) -> None:
        """Keep the seconds of rounds, of so many calls each, and the record that another session has written."""
        self.called, self.parallel = True, record["parallel"]
        self._benchmark.keep(durations if self.enabled else (), calls, lambda: None, self.case.workload)
        self._benchmark.extra_info[KEY] = record
        self._session.raised += [(self.case, flag) for flag in convert(record["processes"][0]["flags"], list[Flag])]

    def _devices_of(self, *values: Any, further: Iterable[Device]) -> list[Device]:
        """The devices of the tensors in these values. Raises UsageError for others than the case uses or names: by
        mistake, or a transfer timed by accident. Single numbers may be on the CPU, as torch allows."""
        allowed = {str(self.home), *map(str, further)}
        used = {str(_present(str(t.device))) for t in tensors(values) if t.dim() and not t.is_meta}
        used.discard(self.home.torch_name)
        if others := sorted(used - allowed):
            how = f"move it, or say gpubench.declare(devices={others!r}) if that is what you measure"
            if self._session.settings.brief:
                how = "make all tensors in the setup, or with device=device"
            raise UsageError(f"a tensor of this case is on {', '.join(others)}, not on {self.home}: {how}")
        return [_present(name) for name in sorted(used)]

    def _use(self, devices: Iterable[Device]) -> None:
        self.clock.use((self.home, *self.clock.devices, *devices))
        names = tuple(sorted({str(device) for device in self.clock.devices}))
        self.case = structs.replace(self.case, devices=names)

    def _precision(self) -> dict[str, Any]:
        autocast = {"autocast": autocast_dtype(self.home)} if self.case.variant == "autocast" else {}
        own = {"own_switches": True} if self.declared.own_switches and self.case.dtype == "tf32" else {}
        return environment.switches() | {"tf32": self.case.dtype == "tf32"} | autocast | own

    # What the steps are made of -----------------------------------------------------------------------------------

    def _reference(self, call: Call) -> Reference | Check:
        if not self.first:
            return unchecked("checked by the run's first process")
        precision, estimate = computed_dtype(self.case, self.home), self._session.rates.estimate
        found = dtypes_of((call.request.function, call.args, dict(call.kwargs)))
        precision = coarsest({precision, coarsest(found) or precision}, precision)
        exact = not self.home.accelerator and self.case.variant != "autocast"
        return prepare_reference(call, precision, self._reference_limit_s, estimate, self.library, exact=exact)

    def _affordable(self, call: Call, expected: Reference) -> Reference | Check:
        """Return the reference unless it may take too long by the call's work, or where that is unknown by its first
        call. One that took long may have compiled or loaded kernels, so that a copy is timed: a second call would
        change what the test's own reference looks at."""
        expected.flops = call.work.flops
        least, _ = self._session.rates.estimate(call.work, CPU, "float64")
        if least is not None:
            return expected if 2 * least <= self._reference_limit_s else too_long(call.first_s)
        factor, seconds = 50 if self.home.accelerator else 2, call.first_s  # a CPU is slower than most accelerators
        if factor * seconds > self._reference_limit_s:
            with suppress(Exception), uncompiled(), restored_random_streams(self.clock.devices):
                limit = self._copied_bytes()
                copied = copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
                start = self.clock()
                copied()
                seconds = self.clock() - start
        return expected if factor * seconds <= self._reference_limit_s else too_long(seconds)

    @property
    def _reference_limit_s(self) -> float:
        return self.allowance.check * (1 if self._family in self._session.checked else FIRST)

    def _next_call(self, call: Call) -> Callable[[], Bound]:
        """Return the function that prepares a round, untimed: the test's setup, and the flush of a cold cache."""
        request, empty_cache = call.request, self._flush

        def next_call() -> Bound:
            args, kwargs = call.args, call.kwargs
            if request.setup is not None:
                args, kwargs = request.arguments()
            if empty_cache is not None:
                empty_cache()
            return call.function, args, kwargs

        return next_call

    def _warm_seconds(self, call: Call) -> tuple[float, float]:
        """Return the seconds per call at the end of the warm-up, without and with what comes before a round."""
        if not self.enabled:
            return 0.0, 0.0
        warm = partial(warm_up, clock=self.clock, seconds=self.allowance.warmup, first_s=call.first_s)
        rising = [self.home] if self.home.accelerator and self.allowance.warmup else []
        if call.again and self._flush is None:
            return until_clocks_stand(partial(warm, call.again), self.clock, rising)
        next_call = self._next_call(call)
        function, args, kwargs = call.function, call.args, call.kwargs

        def before() -> None:
            nonlocal function, args, kwargs
            function, args, kwargs = next_call()

        return until_clocks_stand(partial(warm, lambda: function(*args, **kwargs), before=before), self.clock, rising)

    def _share(self, call: Call) -> Share:
        """Return the rounds that the preset plans."""
        rounds, calls = 1, 1
        if self.enabled:
            prepared = call.again is None or self._flush is not None
            before_s = call.round_s - call.call_s if prepared else None
            longer = dataclasses.replace(self.allowance, max_time=budget.SPREAD_S)
            rounds, calls = budget.plan(call.call_s, longer if self._spreads else self.allowance, before_s)
        share = Share(self._next_call(call), self.clock, rounds, calls, collects=self.declared.collects)
        share.seconds = budget.SPREAD_S if self._spreads and rounds >= ROUNDS_EACH * PLACEMENTS else None
        if self.enabled and self._session.judges and self._session.settings.processes == 1:
            share.placements = self._placements(call, share)
        return share

    def _placements(self, call: Call, share: Share) -> Placements | None:
        """Return the call with copies at other addresses; None, with the reason in the call, if there can't be any."""
        if self.home.accelerator or self.home.simulated or len(self.clock.devices) > 1:
            return None
        call.unplaced = self._why_unplaced(call, share.rounds)
        memory, limit = self.home.memory(), 2 * ([*(cache_sizes() or {}).values()] or [USUAL_CACHE])[-1]
        limit = min(limit, memory.free // 16) if memory else limit
        start, allowed_s = self.clock.now(), COPYING_SHARE * (self.allowance.max_time + self.allowance.warmup)
        placed = Placements([(call.function, call.args, call.kwargs)])
        while not call.unplaced and len(placed.calls) < PLACEMENTS:
            if self.clock.now() - start > allowed_s:
                call.unplaced = "copying it takes too long"
                break
            placed.add_spacer()
            try:
                copied = copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
            except Uncopyable as error:
                call.unplaced = str(error)
                break
            function = apply(self.case.variant, copied.function, self.home)
            function = self.library.prepared(function, copied.args, copied.kwargs)
            placed.calls.append((function, copied.args, copied.kwargs))
        return None if call.unplaced else placed

    def _why_unplaced(self, call: Call, rounds: int) -> str:
        """Return why no copies of the call take rounds; empty if they may."""
        if self.case.variant not in ("eager", "autocast"):
            return f"it is run as {self.case.variant}"
        if call.again is None or self._flush is not None or self.declared.writing:
            return "its data are prepared for each round, or overwritten"
        if call.given and call.given.changed():
            return "the call changes what it uses"
        return "" if rounds >= ROUNDS_EACH * PLACEMENTS else "it has few rounds"

    @property
    def _spreads(self) -> bool:
        return self._session.spreads and self.home == CPU

    def _measure_peaks(self) -> None:
        _ = self._session.ceilings

    @property
    def halfway(self) -> Callable[[], None] | None:
        """What is done in the middle of rounds that are spread over a longer time; None where they aren't."""
        return self._measure_peaks if self._spreads else None

    def _keep(self, share: Share) -> Any:
        """Keep the rounds that were taken, and return a result of after them."""
        if not self.enabled:
            return self._benchmark.keep((), 1, share.call_once, self.case.workload)
        last = self._benchmark.keep(share.times, share.calls, share.call_once, self.case.workload)
        if share.placements:
            share.placements.release()
            return share.call_once()  # the last round's may be of a copy
        return last if share.calls > 1 else share.result

    def _memory(self, call: Call) -> dict[str, int]:
        """Return the most bytes that the case held at once, inputs included: from its device's allocator or, on a CPU,
        which has no allocator that counts, from the call's tensors."""
        if not self.home.accelerator:
            return {"memory_bytes": call.counted.memory_bytes} if call.counted else {}
        if self._peak_bytes is None or self._held_bytes is None or self.implementation != TORCH:
            return {}  # another library has its own allocator
        used, counted, workspace = self._peak_bytes - self._held_bytes, call.counted, self.home.workspace_bytes()
        has_products = counted and (counted.flops or 0.0) > counted.convolution_flops
        if counted and has_products and used >= counted.memory_bytes + workspace:
            used -= workspace  # released after each product, and no memory of the call's tensors
        return {"memory_bytes": max(0, used)}


@contextmanager
def _refused_fallbacks() -> Iterator[None]:
    """A context that raises :class:`Unmeasurable` where torch warns that it computes an operator on the CPU instead."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise once in a process
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(always)
    for each in seen:
        if _FALLBACK.search(text := " ".join(str(each.message).split())):
            raise Unmeasurable(f"computed on the CPU: {text[:200]}")
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _require_finished(function: Callable[..., Any], result: Any = None) -> None:
    if why := calls.unfinished(function, result):
        if inspect.iscoroutine(result):
            result.close()  # otherwise Python warns that it was never awaited
        raise UsageError(f"the call returns {why}")


def _present(name: str) -> Device:
    choice = find_device(name)
    if choice.device is None:
        raise Unmeasurable(str(choice.reason))
    return choice.device
