"""Scripts that build and feed a clone of this repository."""
