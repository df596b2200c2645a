"""Code that several benchmarks share: networks, training, and the pipeline that feeds it."""
