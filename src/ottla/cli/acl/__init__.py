"""`ottla acl`: access rules."""
