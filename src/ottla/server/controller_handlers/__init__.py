"""Handlers of requests that a controller of a quorum serves in its own way; the others are a broker's."""
