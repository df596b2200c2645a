"""Statistics of positive quantities, without any knowledge of benchmarks."""
