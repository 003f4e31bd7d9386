"""ControlledShutdown: a broker asks the controller to move leadership away before it stops.

Of clusters with ZooKeeper, last in Kafka 3.9. Version 0 is the one request whose header has no client id.

    2  broker epoch (KIP-380)
    3  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.CONTROLLED_SHUTDOWN, versions=(0, 3), flexible=3)
class ControlledShutdownRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@message(ApiKey.CONTROLLED_SHUTDOWN, versions=(0, 3), flexible=3)
class ControlledShutdownResponse(Message):
    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition]


@struct
class RemainingPartition(Struct):
    topic_name: str
    partition_index: Int32
