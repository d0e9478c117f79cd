"""Alerts as rows: their episodes, what they are judged by, and what looks remember for each other."""
