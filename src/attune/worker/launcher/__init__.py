"""Starts processes from a small process of its own: quickly, shut in, and bound to the worker's life."""
