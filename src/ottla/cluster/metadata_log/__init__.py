"""PURE. Kafka's metadata log and the cluster's image: records in, state and image out, and back.

`state.py` replays records, `partitions.py`, `registrations.py` and `settings.py` say how each kind of them reads,
`records.py` writes the records of commands, `snapshots.py` those of a whole state, `framing.py` any one in its version;
`levels.py` has the feature levels.
"""
