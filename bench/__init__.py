"""Measures the product from outside: the same platform, clients and witnesses that the tests use."""
