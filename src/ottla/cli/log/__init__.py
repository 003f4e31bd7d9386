"""`ottla log`."""
