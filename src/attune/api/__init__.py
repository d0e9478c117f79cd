"""The HTTP service: routes, schemas and authentication."""
