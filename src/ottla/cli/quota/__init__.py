"""`ottla quota`."""
