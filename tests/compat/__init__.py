"""Other projects' clients against `ottla serve`, and against genuine Kafka to see that the tests are right."""
