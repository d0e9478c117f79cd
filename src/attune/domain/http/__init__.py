"""Requests of `http` actions: what is asked, where it may go, and what an answer means."""
