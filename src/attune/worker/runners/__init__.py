"""One module for each way of running an action."""
