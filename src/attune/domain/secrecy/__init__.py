"""What must not be seen: where a schema says so, and how it is taken out of what is shown."""
