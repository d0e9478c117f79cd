"""The service that runs actions."""
