"""Attune: an automation engine that turns events into executed actions."""
