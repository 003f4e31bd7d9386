"""Transforms and predicates, by the names and settings of Kafka Connect's."""
