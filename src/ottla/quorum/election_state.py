"""PURE. The part of a replica's state that outlives its process: the content of `quorum-state`."""

from __future__ import annotations

from typing import NamedTuple

from ottla.quorum.replicas import ReplicaKey


class ElectionState(NamedTuple):
    """The newest epoch that a replica has seen, its leader if known, and this replica's vote in it.

    In `quorum-state` an unknown leader and a vote that was not cast are -1. Version 0 of the file (kraft.version 0)
    also lists the ids of the voters and has no directory of the vote; version 1 has the directory and no voters.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None
