"""Several devices at once: DataParallel in this process; all else in a process group with one process per device."""
