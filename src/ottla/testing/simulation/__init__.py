"""A whole cluster in one process, over virtual time: every decision follows from a seed."""
