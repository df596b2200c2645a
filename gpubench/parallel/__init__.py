"""Several devices at once: DataParallel in this process, everything else in a process group with one process per
device."""
