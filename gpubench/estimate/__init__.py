"""What a GPU that isn't here could bring: a bound by physics, and a likely time with a stated hit rate. No torch."""
