"""Partitions by role: appends, replication, the high watermark, and the requests that wait for it."""
