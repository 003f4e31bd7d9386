"""PURE: messages, rows and types of PostgreSQL's replication protocol as values and schemas."""
