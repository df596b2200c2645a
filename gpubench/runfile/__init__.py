"""What is read and written between measuring, supervising and reporting; standard library only."""
