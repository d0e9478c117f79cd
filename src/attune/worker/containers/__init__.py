"""Containers of actions: what makes them here, how they are told apart, and how none is left behind."""
