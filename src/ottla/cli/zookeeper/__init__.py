"""`ottla zookeeper`."""
