"""How executions end, or are given another chance, when nobody reports their end."""
