"""Ottla: a durable, partitioned commit log that speaks Apache Kafka's protocol.

Importing this package imports nothing else: the broker (`ottla.broker`), the test tools (`ottla.testing`)
and the Spark pipeline (`ottla.pipeline`) are loaded when they are imported.
"""

__version__ = "0.1.0"
