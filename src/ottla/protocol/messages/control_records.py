"""Values of control records: the end of a transaction, the beginning of a leadership.

Markers end transactions in user partitions (KIP-98), behind a version (int16), see `ottla.protocol.versioned`. A
LeaderChangeMessage opens each epoch of a KRaft log (KIP-595), with voters' directories since version 1 (KIP-853); its
version is its first field.
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.primitives import NULL_UUID, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(versions=(0, 0))
class EndTxnMarker(Message):
    coordinator_epoch: Int32


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage(Message):
    version: Int16
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


@struct
class Voter(Struct):
    voter_id: Int32
    voter_directory_id: UUID = since(1, default=NULL_UUID)
