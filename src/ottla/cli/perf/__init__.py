"""`ottla perf`."""
