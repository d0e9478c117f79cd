"""Rows that say what can be run and within which limits, beside the actions themselves."""
