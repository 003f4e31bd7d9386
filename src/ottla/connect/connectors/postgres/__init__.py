"""Changes of a PostgreSQL database by logical replication, in Debezium's envelope."""
