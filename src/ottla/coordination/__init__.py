"""What groups, transactions and share groups have in common: a machine that keeps its state in a log partition."""
