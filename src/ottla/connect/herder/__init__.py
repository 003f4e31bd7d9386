"""PURE: the state in the topic of configurations, and its assignment to workers."""
