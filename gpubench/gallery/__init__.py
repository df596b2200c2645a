"""A static site of many machines, any two of them side by side."""
