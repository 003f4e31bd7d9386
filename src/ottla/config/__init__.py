"""Every setting: Kafka's name, type, unit, default and meaning."""
