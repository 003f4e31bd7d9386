"""Benchmarks against genuine Kafka; run by `make bench`."""
