"""A small client for requests from broker to broker."""
