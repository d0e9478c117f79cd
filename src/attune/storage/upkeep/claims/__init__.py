"""What must always be true of the data, subject by subject, as statements that return the rows which break it."""
