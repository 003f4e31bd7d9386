"""The share partitions that this broker leads: what members read, their sessions and their state (KIP-932)."""
