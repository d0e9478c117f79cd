"""What is done with messages that died: by the executor, and by people."""
