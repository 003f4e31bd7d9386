"""What runs connectors: workers, tasks, their logs of state, and what stands between a connector and a topic."""
