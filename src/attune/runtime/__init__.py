"""What a running process needs: configuration, logs, lifecycles."""
