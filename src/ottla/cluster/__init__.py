"""PURE: what a cluster consists of, as an immutable image; its changes, and what a controller decides."""
