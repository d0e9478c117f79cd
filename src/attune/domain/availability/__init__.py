"""Decisions about workers that come and go: what is missing, what is wanted, who is taken out."""
