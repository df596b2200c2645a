"""GPUs that aren't here: their datasheets, and the time that work takes on them. No torch."""
