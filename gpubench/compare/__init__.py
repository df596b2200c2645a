"""Two sets of run files, and whether anything changed between them."""
