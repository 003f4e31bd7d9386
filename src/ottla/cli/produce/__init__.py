"""`ottla produce`."""
