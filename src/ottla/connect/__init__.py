"""Connectors: databases, files and other systems into topics, and topics out to them, in the way of Kafka Connect.

`ottla.connect.api` is what a connector is written with; `ottla.connect.runtime` runs connectors. Works against any
Kafka-compatible cluster.
"""
