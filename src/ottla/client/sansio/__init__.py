"""The conversation of a client with a broker, without I/O. PURE."""
