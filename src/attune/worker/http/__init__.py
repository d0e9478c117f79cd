"""Requests over the network: guarded where they go, bounded in what they bring back."""
