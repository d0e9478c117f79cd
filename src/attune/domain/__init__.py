"""The rules of Attune, free of input and output."""
