"""What people and time do to lines: pausing, resuming, clearing, and giving up on who waited too long."""
