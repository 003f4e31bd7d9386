"""Consumer groups as pure machines: membership, rebalances, committed offsets, and how they stand in the log."""
