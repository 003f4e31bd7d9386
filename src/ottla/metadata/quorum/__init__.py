"""Runs the quorum that keeps the cluster's metadata: its files, its timers and its connections to other nodes."""
