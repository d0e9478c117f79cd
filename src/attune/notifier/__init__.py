"""The service that streams changes to those who watch."""
