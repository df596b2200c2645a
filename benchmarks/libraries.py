"""The same values in torch and in NumPy."""


def numpy_threads(gpubench, threads=1):
    """Return the threads that NumPy's function uses; ``None``, all, in a case of torch."""
    return threads if gpubench.implementation == "numpy" else None


def measure(gpubench, function, numpy_function, *tensors, threads=1, **work):
    """Time the function of torch, or that of NumPy, which uses ``threads``, on the same values."""
    gpubench.declare(threads=numpy_threads(gpubench, threads), **work)
    gpubench(numpy_function if gpubench.implementation == "numpy" else function, *map(gpubench.array, tensors))
