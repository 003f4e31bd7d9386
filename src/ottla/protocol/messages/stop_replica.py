"""StopReplica: the controller has a broker stop replicas, and optionally delete them.

For clusters with ZooKeeper; last in Kafka 3.9.

    1  broker epoch; grouped by topic (KIP-380)
    2  flexible
    3  leader epochs; deletion decided per partition (KIP-570)
    4  whether the controller is a KRaft one (KIP-866)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.STOP_REPLICA, versions=(0, 4), flexible=2)
class StopReplicaRequest(Message):
    controller_id: Int32
    is_kraft_controller: bool = since(4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, default=-1, ignorable=True)
    delete_partitions: bool = since(until=2, default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since(until=0, default_factory=list)
    topics: list[StopReplicaTopicV1] = since(1, until=2, default_factory=list)
    topic_states: list[StopReplicaTopicState] = since(3, default_factory=list)


@struct
class StopReplicaPartitionV0(Struct):
    topic_name: str
    partition_index: Int32


@struct
class StopReplicaTopicV1(Struct):
    name: str
    partition_indexes: list[Int32]


@struct
class StopReplicaTopicState(Struct):
    topic_name: str
    partition_states: list[StopReplicaPartitionState]


@struct
class StopReplicaPartitionState(Struct):
    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: bool


@message(ApiKey.STOP_REPLICA, versions=(0, 4), flexible=2)
class StopReplicaResponse(Message):
    error_code: Int16 = 0
    partition_errors: list[StopReplicaPartitionError]


@struct
class StopReplicaPartitionError(Struct):
    topic_name: str
    partition_index: Int32
    error_code: Int16 = 0
