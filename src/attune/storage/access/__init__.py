"""Rows that say who may do what, who did what, and which requests were already answered."""
