"""Rows of what attempts say: what they print, what they leave behind, and what comes too late."""
