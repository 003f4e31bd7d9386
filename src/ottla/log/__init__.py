"""The partition logs: Kafka's files, synchronous, behind one filesystem seam."""
