"""Parts of the test run: servers, databases and the closing table."""
