"""What packs need besides their own files: built once from a lock, shared by every execution, removed when unused."""
