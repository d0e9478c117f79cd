"""How the platform does: the history of lines, and the counters of all processes."""
