"""Attune: event-driven automation that never loses, doubles or reorders what it accepted."""

__version__ = "0.1.0"
