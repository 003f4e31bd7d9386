"""Values of control records that describe a KRaft log and its snapshots; the version of each is its first field.

A snapshot begins with a SnapshotHeaderRecord and ends with a SnapshotFooterRecord (KIP-630). KRaftVersionRecord and
VotersRecord name the voters in logs where these may change (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.primitives import Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, struct


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message):
    """`last_contained_log_timestamp` in milliseconds."""

    version: Int16
    last_contained_log_timestamp: Int64


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message):
    version: Int16


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord(Message):
    version: Int16
    k_raft_version: Int16


@message(versions=(0, 0), flexible=0)
class VotersRecord(Message):
    version: Int16
    voters: list[Voter]


@struct
class Voter(Struct):
    """A voter, its directory and its addresses, and the levels of `kraft.version` that it supports."""

    voter_id: Int32
    voter_directory_id: UUID
    endpoints: list[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


@struct
class Endpoint(Struct):
    name: str
    host: str
    port: UInt16


@struct
class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16
