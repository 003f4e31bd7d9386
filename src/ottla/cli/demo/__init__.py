"""`ottla demo`."""
