"""The result of ``gpubench profile``, as its JSON holds it: SI units, null if unknown."""

from __future__ import annotations

from msgspec import Struct

from ..runfile.schema import Operators
from .notes import CORRELATED

Span = tuple[float, float]


class Step(Struct):
    """A step: the event that ends it, its batches and rows (``items``), and its mean over ``n`` steps with the interval
    within this run, after ``warm`` others; ``rho`` is the correlation of neighbours."""

    mark: str
    rank: str
    n: int
    mean_s: float
    low_s: float
    high_s: float | None
    batches: float = 0.0
    items: int | None = None
    shape: str = ""
    warm: int = 0
    first_s: float | None = None
    rho: float = 0.0


class LoaderFacts(Struct):
    """A loader of the steps: the line that makes it, and the seconds of a batch while nothing else runs."""

    line: str
    workers: int
    pinned: bool
    alone_s: float | None = None


class Place(Struct):
    """A call in the counted step: its name, its line, how often and how many bytes."""

    call: str
    line: str
    n: int = 1
    bytes: int = 0


class Cause(Struct):
    """A cause with the seconds of a step at stake, and the next thing to do."""

    name: str
    seconds: float
    says: str
    next: str = ""


class OnGpu(Struct):
    """A step on a GPU: ranges of seconds, and of the speedup over the CPU."""

    gpu: str
    step_s: Span
    host_s: Span
    gpu_s: Span
    optimizer_s: Span
    copies_s: Span
    speedup: Span
    without_waiting: Span
    capacity: float | None = None

    @property
    def busy_s(self) -> Span:
        """Seconds of the GPU's work in a step, without copies."""
        return self.gpu_s[0] + self.optimizer_s[0], self.gpu_s[1] + self.optimizer_s[1]


class Profile(Struct):
    """The whole answer. ``regions`` are seconds of a mean step by the notes alone, ``steps`` the seconds of each
    step in the same order; ``parts`` have the host's time apart if a step was ``traced``: before, PYTHON also holds
    operators outside of modules. ``refusal`` is the reason why there is none; ``lost`` has the missing parts, and
    why."""

    script: str
    version: int = 1
    refusal: str = ""
    ended: str = "stopped"
    machine: str = ""
    torch: str = ""
    device: str = "cpu"
    gpu: str = ""
    runs: int = 1
    threads: int = 0
    dtype: str = "float32"
    busy: str = ""
    step: Step | None = None
    parts: dict[str, float] = {}
    regions: dict[str, float] = {}
    steps: list[list[float]] = []
    evaluation_s: float = 0.0
    loaders: list[LoaderFacts] = []
    lines: dict[str, list[tuple[str, int]]] = {}
    waits: list[Place] = []
    copies: list[Place] = []
    copied_bytes: int = 0
    operators: list[Operators] = []
    optimizer: list[Operators] = []
    launches: int | None = None
    optimizer_launches: int | None = None
    memory_bytes: int | None = None
    compiled: bool = False
    traced: bool = False
    bound: float | None = None
    causes: list[Cause] = []
    gpus: list[OnGpu] = []
    unmodelled: str = ""
    measured: dict[str, tuple[float, float, float]] = {}
    lost: dict[str, str] = {}

    @property
    def mean_s(self) -> float:
        """Seconds of a mean step; 0 without one."""
        return self.step.mean_s if self.step else 0.0

    @property
    def all_launches(self) -> int:
        """Launches of a step with its optimizer; 0 if they are unknown."""
        return (self.launches or 0) + (self.optimizer_launches or 0)

    @property
    def workers(self) -> int:
        """Workers of the loader of the steps."""
        return max((loader.workers for loader in self.loaders), default=0)

    @property
    def alone_s(self) -> float | None:
        """Seconds in which the loaders alone make a step's batches; None if unknown."""
        timed = [loader.alone_s for loader in self.loaders if loader.alone_s is not None]
        return self.step.batches * sum(timed) / len(timed) if timed and self.step else None

    @property
    def own_s(self) -> float:
        """Seconds of own Python; 0 if they are unknown."""
        return self.parts["python"] if self.traced else 0.0

    @property
    def star(self) -> str:
        """The sign of an unreliable time or interval."""
        return "*" * bool(self.busy or (self.step and self.step.rho > CORRELATED))
