"""Partitions by role: who may append, what is committed, who waits for it."""
