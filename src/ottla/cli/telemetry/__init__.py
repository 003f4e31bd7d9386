"""`ottla telemetry`."""
