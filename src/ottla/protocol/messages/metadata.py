"""Metadata: brokers, controller, topics, and the leader of each partition.

All topics are meant by an empty list in version 0 and by null since version 1, where empty means none.

    1  racks, controller id, internal topics        8  authorized operations on request (KIP-430)
    2  cluster id                                   9  flexible
    4  automatic creation is the client's choice   10  topic ids in answers (KIP-516)
    5  offline replicas                            11  no cluster operations; DescribeCluster has them (KIP-700)
    7  leader epochs (KIP-320)                     12  topics asked for by id
                                                   13  an error for the whole answer
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.METADATA, versions=(0, 13), flexible=9)
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = since(nullable_since=1)
    allow_auto_topic_creation: bool = since(4, default=True)
    include_cluster_authorized_operations: bool = since(8, until=10, default=False)
    include_topic_authorized_operations: bool = since(8, default=False)


@struct
class MetadataRequestTopic(Struct):
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    name: str | None = since(nullable_since=10)


@message(ApiKey.METADATA, versions=(0, 13), flexible=9)
class MetadataResponse(Message):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, until=10, default=-0x8000_0000)
    error_code: Int16 = since(13, default=0, ignorable=True)


@struct
class MetadataResponseBroker(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = since(1, default=None, ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: str | None = since(nullable_since=12)
    topic_id: UUID = since(10, default=NULL_UUID, ignorable=True)
    is_internal: bool = since(1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=-0x8000_0000)


@struct
class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5, default_factory=list, ignorable=True)
