"""Python actions begin as copies of a Python that has already started: the worker's side of it."""
