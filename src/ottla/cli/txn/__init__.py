"""`ottla txn`."""
