"""The gain by a GPU that isn't here: a bound by physics, and a likely time with a stated hit rate. No torch."""
