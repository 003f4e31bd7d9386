"""Tables of any database that SQLAlchemy reaches: rows from topics, rows into topics."""
