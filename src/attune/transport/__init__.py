"""How services send each other messages."""
