"""The schema's history, one SQL file a step."""
