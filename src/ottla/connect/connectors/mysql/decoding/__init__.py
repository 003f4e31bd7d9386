"""PURE: rows and types of a binlog as values and schemas."""
