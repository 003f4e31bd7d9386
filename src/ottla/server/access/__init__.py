"""What each API requires of its client, and what it is answered without: Kafka's authorization (`guards`)."""
