"""Implementations: the libraries that can do a benchmark's work.

Each is one class, here or registered by a plugin. A library is imported only when a benchmark needs it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ..errors import Unmeasurable, UsageError
from .base import Device
from .lazy import np, torch

TORCH = "torch"
"""The implementation that works on the fixture's own tensors; all others get arrays."""


class Implementation(ABC):
    """A library on the device of one case; a subclass is a library, which :func:`register_implementation` adds. It must
    define the abstract methods, :attr:`name`, :attr:`label` and :attr:`module`. A case's object is opened before the
    case makes its inputs, and closed when its test is over."""

    name: ClassVar[str]
    """The value of the parameter ``implementation``."""
    label: ClassVar[str]
    """The customary spelling of the name."""
    module: ClassVar[str]
    """The module that is imported."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Names, as pip knows them, of the packages that have a recorded version."""
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    """Dtypes that the library supports and people use."""
    variants: ClassVar[tuple[str, ...]] = ("eager",)
    """Variants that a call on its arrays can have."""
    writes: ClassVar[bool] = True
    """Whether a call can write into a given array."""
    asynchronous: ClassVar[bool] = False
    """Whether a call may return before its work is done; :meth:`wait` then waits for it."""

    def __init__(self, device: Device, dtype: str) -> None:
        self.device, self.dtype = device, dtype

    @classmethod
    def why_absent(cls) -> str | None:
        """Return why the library can't be imported, in words that a user can act on; ``None`` if it is installed.
        Imports nothing."""
        package = cls.module.partition(".")[0]
        installed = sys.modules[package] if package in sys.modules else importlib.util.find_spec(package)
        return None if installed else f"{cls.label} is not installed"

    @classmethod
    @abstractmethod
    def why_not_on(cls, device: Device) -> str | None:
        """Return why the library can't compute on this device, or ``None`` if it can. Imports and initializes
        nothing."""

    def open(self, threads: int) -> None:
        """Import the library, and set its number of CPU threads, if possible, and the precision of the case's dtype.
        Raises :class:`~gpubench.errors.Unmeasurable` if the library is broken or doesn't see the device."""
        _ = self.xp

    def close(self) -> None:  # noqa: B027
        """Undo the settings of :meth:`open`."""

    @property
    def xp(self) -> Any:
        """The library's functions on arrays, called like NumPy's or the array API standard's."""
        try:
            return importlib.import_module(self.module)
        except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
            text = " ".join(str(error).split()) or type(error).__name__
            raise Unmeasurable(self.why_absent() or f"{self.label} can't be imported: {text}") from error

    @abstractmethod
    def array(self, tensor: torch.Tensor) -> Any:
        """Return a tensor's values as an array of this library on the case's device, in the same memory if
        possible."""

    def prepared(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the function in the form that is usual in this library (such as compiled), for calls with arguments
        like these. A function with ``applies_variant`` set is called as it is."""
        return function

    def wait(self) -> None:  # noqa: B027
        """Return once the work of all calls is done, if the library is :attr:`asynchronous`."""

    def twin(self, value: Any) -> Any:
        """Return NumPy's counterpart of the library's namespace, of its parts and functions, to check results with.
        Other values are returned unchanged."""
        if callable(value) or isinstance(value, type(sys)):
            import numpy

            for part in ("", "linalg", "fft"):
                space, counterpart = (getattr(root, part, root) if part else root for root in (self.xp, numpy))
                if value is space:
                    return counterpart
                name = next((name for name, member in list(vars(space).items()) if member is value), None)
                if name is not None:
                    return getattr(counterpart, name, value)
        return value


LIBRARIES: dict[str, type[Implementation]] = {}
"""Registered libraries by name."""
_Library = TypeVar("_Library", bound=type[Implementation])


def register_implementation(library: _Library) -> _Library:
    """Add a library to this process, in place of one of the same name; a class decorator."""
    LIBRARIES[library.name] = library
    return library


def find_implementation(name: str) -> type[Implementation]:
    """Return the library of this name. Raises :class:`UsageError` with a list of the libraries."""
    if name not in LIBRARIES:
        raise UsageError(f"unknown implementation {name!r}: choose from {', '.join(LIBRARIES)}")
    return LIBRARIES[name]


def library_versions() -> dict[str, str]:
    """Return the versions of all installed libraries except torch, by the name of their package."""
    versions = {}
    for name in [name for library in LIBRARIES.values() for name in library.distributions]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@register_implementation
class PyTorch(Implementation):
    """PyTorch: its tensors are the case's own, and the device waits for its work."""

    name, label, module = TORCH, "PyTorch", "torch"

    @classmethod
    def why_not_on(cls, device: Device) -> None:
        return None  # devices are torch's

    def array(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def twin(self, value: Any) -> Any:
        return value  # torch's functions compute in float64 on the CPU


@register_implementation
class NumPy(Implementation):
    """NumPy: its calls are done when they return, and its arrays lie in the tensors' own memory."""

    name, label, module, distributions = "numpy", "NumPy", "numpy", ("numpy",)

    @classmethod
    def why_not_on(cls, device: Device) -> str | None:
        return "NumPy computes on the CPU only" if device.accelerator else None

    def array(self, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
        try:
            array: np.ndarray[Any, Any] = tensor.numpy()
        except TypeError as error:
            raise Unmeasurable(f"NumPy has no such dtype: {error}") from error
        assert torch.from_numpy(array).data_ptr() == tensor.data_ptr(), "NumPy got a copy, not the same memory"
        return array
