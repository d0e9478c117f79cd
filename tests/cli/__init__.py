"""The command line and the processes it supervises."""
