"""Several devices at once: DataParallel in this process; everything else in one process a device."""
