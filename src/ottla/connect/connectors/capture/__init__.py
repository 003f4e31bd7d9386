"""PURE: what change capture has in common over databases: Debezium's envelope and types, which tables, which topics."""
