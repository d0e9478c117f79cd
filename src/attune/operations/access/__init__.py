"""Who is asking, and how they come to be trusted: identities, passwords, tokens, the first administrator."""
