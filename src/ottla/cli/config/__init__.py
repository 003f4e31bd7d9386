"""`ottla config`."""
