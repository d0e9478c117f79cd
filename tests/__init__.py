"""The tests: each one a sentence about a promise."""
