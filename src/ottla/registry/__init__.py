"""What satellites share that read records by the schemas of a registry: its client, its wire format, Avro, Protobuf."""
