"""Measurement of one case at a time, inside pytest, with torch."""
