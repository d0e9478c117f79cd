"""Getting messages from a commit to their handler, on each transport."""
