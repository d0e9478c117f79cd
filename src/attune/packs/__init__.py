"""Reading and checking packs."""
