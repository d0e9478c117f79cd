"""Witnesses: what a test trusts instead of the code under test."""
