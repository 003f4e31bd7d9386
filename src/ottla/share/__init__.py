"""Share groups at their partitions, and the state of share partitions that outlives them (KIP-932)."""
