"""Statements that check and clean: invariants, partitions, retention."""
