"""Real brokers for the tests and the benchmarks: genuine Kafka and Ottla as child processes."""
