"""Statistics of positive quantities; knows nothing of benchmarks."""
