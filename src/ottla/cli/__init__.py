"""The command line: one module per noun, a program over the client library like any user's own."""
