"""Converters: keys, values and headers to bytes and back, by the names of Kafka Connect's classes."""
