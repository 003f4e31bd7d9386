"""`ottla quorum`."""
