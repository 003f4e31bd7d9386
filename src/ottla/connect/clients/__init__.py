"""What runtime and connectors share around Kafka clients: their log, places in groups, ids of clusters and topics."""
