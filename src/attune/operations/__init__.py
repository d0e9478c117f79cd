"""One module for each thing that Attune can be asked to do."""
