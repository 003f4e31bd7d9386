"""`ottla pipeline`."""
