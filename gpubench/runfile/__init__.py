"""The files between measuring, supervising and reporting; standard library only."""
