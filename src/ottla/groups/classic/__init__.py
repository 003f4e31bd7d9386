"""PURE: groups of the classic protocol, which divide the work among themselves."""
