"""The same values in torch and in NumPy."""


def measure(gpubench, function, numpy_function, *tensors, numpy_threads=1, **work):
    """Time the function of torch, or that of NumPy, which uses ``numpy_threads``, on the same values."""
    numpy = gpubench.implementation == "numpy"
    gpubench.declare(threads=numpy_threads if numpy else None, **work)
    gpubench(numpy_function if numpy else function, *map(gpubench.array, tensors))
