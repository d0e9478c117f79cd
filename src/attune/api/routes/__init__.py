"""One module of HTTP routes for each kind of resource."""
