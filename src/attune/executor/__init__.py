"""The service that decides what runs next."""
