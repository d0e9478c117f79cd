"""The service that keeps sensors running."""
