"""What is done about workers that come, go, fall silent, or are taken out by hand."""
