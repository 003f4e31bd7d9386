"""`ottla cert`: certificates for development."""
