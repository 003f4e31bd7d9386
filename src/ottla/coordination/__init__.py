"""PURE: what the machines of groups, transactions and share groups have in common: effects, timers, producers."""
