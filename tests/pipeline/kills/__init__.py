"""Kills a streaming query's tasks, executors and driver at random, and counts what it wrote; see `__main__`."""
