"""Kafka Connect's REST API: paths and shapes, what a request asks of the worker, and the client."""
