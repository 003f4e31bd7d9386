"""Changes of a MySQL or MariaDB server by its binlog, in Debezium's envelope."""
