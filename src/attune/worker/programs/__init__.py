"""Programs that run under an action's own interpreter: each is one file and imports nothing of Attune."""
