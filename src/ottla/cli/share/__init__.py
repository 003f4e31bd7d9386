"""`ottla share`."""
