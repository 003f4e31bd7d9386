"""A web console for any Kafka cluster: what is healthy, topics, records and groups. Read-only (docs/console.md)."""
