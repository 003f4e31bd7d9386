"""`ottla storage`."""
