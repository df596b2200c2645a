"""Supervision: starts measuring processes and watches them. Imports neither torch nor pandas."""
