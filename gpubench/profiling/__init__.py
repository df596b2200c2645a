"""The profile of a script: the parts of its step, measured here, and the step's time on GPUs, modelled."""
