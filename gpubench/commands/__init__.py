"""The commands, one per file: its options, and its `main`."""
