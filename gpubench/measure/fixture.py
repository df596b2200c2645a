"""The ``gpubench`` fixture. A call is a :class:`~.plan.Plan`, which is prepared, timed, probed and recorded."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

from msgspec import convert, structs, to_builtins

from ..devices import CPU, Device
from ..devices.implementations import TORCH, find_implementation
from ..devices.lazy import np, torch
from ..errors import GpubenchError, Unmeasurable, UsageError
from ..runfile.flags import Flag
from ..runfile.schema import KEY, Case, Parallel, Work
from . import disturbance
from .budget import Preset
from .clock import MIN_WAITS, DeviceClock
from .data import Data, pinned_copy
from .plan import Declared, Plan, Prepared, Rounds
from .precision import computing, matmul_precision, torch_dtype
from .prepare import Preparation, plan_rounds
from .probes import flush
from .record import end_rounds, fields_of, precision_of, record, time_plainly
from .rounds import Share, take_turns
from .session import Session
from .state import untraced
from .work import Request, declared, plain_number

LEFT_BEHIND = 1 << 28
"""Bytes allocated on an accelerator before a case above which garbage is collected: networks in reference cycles
outlive their case, and their memory would count as used by none, or by a later one."""
UNDECLARED = Declared()


class RoundKeeper(Protocol):
    """Keeps a benchmark's rounds for the table and the results file; ``stats`` are their statistics, None before.
    ``enabled``: whether anything is timed at all, unlike with ``--benchmark-disable``."""

    enabled: bool
    fullname: str
    extra_info: dict[str, Any]

    @property
    def stats(self) -> Any:
        """The statistics of the rounds that are kept; None before."""

    def keep(self, durations: Sequence[float], calls: int, call: Callable[[], Any], group: str) -> Any:
        """Keep the seconds of rounds of so many calls, and return the result of a further ``call``."""


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
        self, session: Session, preset: Preset, case: Case, home: Device, benchmark: RoundKeeper,
        declared: Declared = UNDECLARED,
    ) -> None:  # fmt: skip
        if home.accelerator and case.implementation != TORCH:
            home.release_memory()
        # Before any data is made: memory in use by now isn't the case's.
        empty_cache = flush(home) if case.cache == "cold" else None
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
        self.declaration = Request(None, (), {}, work, check, setup, names, threads, steps)
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
        with those of other calls. The identity of the case is final then."""
        preparation = Preparation(self._plan(fn, args, kwargs))
        try:
            prepared = preparation.run()
        finally:
            self.case = preparation.case
        return prepared, plan_rounds(prepared)

    def finish(self, prepared: Prepared, share: Share) -> Any:
        """Check, probe and record a call whose rounds have been taken, and return its result."""
        rounds = end_rounds(prepared, share, self._keep(share))
        fields, result, again = fields_of(prepared, rounds), rounds.result, prepared.call.again
        if again and fields.keys() & {"device_s", "device_reason"}:
            result = again()  # a replayed graph has overwritten that of the rounds
        fields["launches"] = bool(prepared.counted and prepared.counted.operations)
        self._record(rounds, prepared.work, **fields)
        return result

    def _plan(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
        """Return the call in the conditions that the test has declared."""
        terms = self.take_declaration()
        if self._conditions is None:
            how = "for a call of each size write @pytest.mark.parametrize('n', [64, 4096])"
            raise UsageError(
                f"a test measures one gpubench(…) call, and this is its second: {how}, or write another test"
            )
        if not callable(fn):
            raise UsageError(f"expected a function: pass f and its arguments, not what f() returned ({fn!r:.40})")
        self.called = True
        if terms.threads is not None:
            self.case = structs.replace(self.case, threads=terms.threads)
        request = dataclasses.replace(terms, function=fn, args=args, kwargs=kwargs)
        return Plan(request, self.case, *self._conditions)

    def _keep(self, share: Share) -> Any:
        """Keep the rounds that were taken, and return a result of after them."""
        times, calls = (share.times, share.calls) if self.enabled else ((), 1)
        last = self._benchmark.keep(times, calls, share.call_once, self.case.workload)
        if share.places:
            share.release()
            return share.call_once()  # the last round's may be of a copy
        return last if calls > 1 or not self.enabled else share.result

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
        self._record(rounds, work, precision=precision_of(self.home, self.case, self.declared), **fields)

    def take_over(self, durations: Sequence[float], calls: int, record: dict[str, Any]) -> None:
        """Keep the seconds of rounds, of so many calls each, and the record that another session has written."""
        self.called, self.parallel = True, record["parallel"]
        self._benchmark.keep(durations if self.enabled else (), calls, lambda: None, self.case.workload)
        self._benchmark.extra_info[KEY] = record
        self._session.raised += [(self.case, flag) for flag in convert(record["processes"][0]["flags"], list[Flag])]
