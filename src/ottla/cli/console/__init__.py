"""`ottla console`."""
