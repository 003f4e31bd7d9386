"""Metrics of a server process: how they are declared, counted, and read over HTTP in Prometheus' formats.

A broker's own metrics are in `ottla.server.metrics`.
"""
