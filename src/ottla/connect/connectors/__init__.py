"""The connectors that ship: each a package or module of its own, written with `ottla.connect.api` alone."""
