"""PURE: what a log decides without looking at a file."""
