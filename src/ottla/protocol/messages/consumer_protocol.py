"""The messages that consumers of protocol type "consumer" exchange through JoinGroup and SyncGroup.

Opaque to the broker but for tools: a version (int16) precedes each, see `ottla.protocol.versioned`. A reader that
meets a newer version than it knows reads it as the newest it knows, since fields are only ever appended.

    1  owned partitions, for cooperative rebalancing (KIP-429)
    2  generation, to tell stale ownership (KIP-792)
    3  rack (KIP-881)
"""

from __future__ import annotations

from ottla.protocol.primitives import Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = since(1, default_factory=list, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: str | None = since(3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartition]
    user_data: bytes | None = None


@struct
class TopicPartition(Struct):
    topic: str
    partitions: list[Int32]
