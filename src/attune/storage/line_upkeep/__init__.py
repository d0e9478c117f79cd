"""What people and sweeps do to lines: pausing, clearing, expiring, adapting."""
