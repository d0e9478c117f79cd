"""`attune bench`: a throw-away platform, work sent to it over HTTP, and the client's own notes as witness."""
