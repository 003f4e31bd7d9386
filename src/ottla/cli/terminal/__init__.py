"""What every command shares that knows nothing of Kafka: exit codes, output, progress, times, interruption."""
