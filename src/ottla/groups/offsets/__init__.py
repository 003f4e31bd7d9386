"""PURE: committed offsets, whatever the kind of their group, also in transactions."""
