"""`ottla streams`."""
