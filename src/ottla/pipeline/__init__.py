"""The data pipeline on Spark: a source and sink for topics without a jar, and the jobs built on it.

A satellite: it talks to a broker through confluent-kafka and works against any broker that speaks Kafka's protocol.
"""
