"""Several devices at once: DataParallel in this process, all else in a process group, one process per device."""
