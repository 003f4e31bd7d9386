"""UpdateMetadata: the controller sends every broker the brokers and partitions, for its Metadata responses.

For clusters with ZooKeeper; last in Kafka 3.9.

    1  several endpoints per broker                 5  broker epoch; grouped by topic (KIP-380)
    2  racks (KIP-36)                               6  flexible
    3  listener names (KIP-103)                     7  topic ids (KIP-516)
    4  offline replicas (KIP-112)                   8  whether the controller is a KRaft one (KIP-866)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.UPDATE_METADATA, versions=(0, 8), flexible=6)
class UpdateMetadataRequest(Message):
    controller_id: Int32
    is_kraft_controller: bool = since(8, default=False)
    type: Int8 = since(8, tag=0, default=0)
    controller_epoch: Int32
    broker_epoch: Int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since(until=4, default_factory=list)
    topic_states: list[UpdateMetadataTopicState] = since(5, default_factory=list)
    live_brokers: list[UpdateMetadataBroker]


@struct
class UpdateMetadataPartitionState(Struct):
    topic_name: str = since(until=4, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = since(4, default_factory=list, ignorable=True)


@struct
class UpdateMetadataTopicState(Struct):
    topic_name: str
    topic_id: UUID = since(7, default=NULL_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataBroker(Struct):
    id: Int32
    v0_host: str = since(until=0, default="", ignorable=True)
    v0_port: Int32 = since(until=0, default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = since(1, default_factory=list, ignorable=True)
    rack: str | None = since(2, default="", ignorable=True)


@struct
class UpdateMetadataEndpoint(Struct):
    port: Int32
    host: str
    listener: str = since(3, default="", ignorable=True)
    security_protocol: Int16


@message(ApiKey.UPDATE_METADATA, versions=(0, 8), flexible=6)
class UpdateMetadataResponse(Message):
    error_code: Int16 = 0
