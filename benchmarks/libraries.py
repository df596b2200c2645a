"""The same values in torch and in NumPy, and kernels that torch lacks on some devices."""

from contextlib import contextmanager

import torch

from gpubench.errors import Unmeasurable


def numpy_threads(gpubench, threads=1):
    """Return the threads that NumPy's function uses; ``None``, all, in a case of torch."""
    return threads if gpubench.implementation == "numpy" else None


def measure(gpubench, function, numpy_function, *tensors, threads=1, **work):
    """Time the function of torch, or that of NumPy, which uses ``threads``, on the same values."""
    gpubench.declare(threads=numpy_threads(gpubench, threads), **work)
    gpubench(numpy_function if gpubench.implementation == "numpy" else function, *map(gpubench.array, tensors))


def multiply_add(xp, r, a, b, out=None, scratch=None):
    """r + a * b in two passes, of which each writes into given memory or allocates."""
    return xp.add(r, xp.multiply(a, b, out=scratch), out=out)


@contextmanager
def required(name):
    """A context that skips the test, with torch's reason, where torch has no such operation."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, RuntimeError, ValueError) as error:
        raise Unmeasurable(f"no {name} here: {' '.join(str(error).split())[:120]}") from error
