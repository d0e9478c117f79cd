"""The all-in-one: one process that starts the database and the services and keeps them running."""
