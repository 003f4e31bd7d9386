"""LeaderAndIsr: the controller sends a broker its replicas, with their leaders and in-sync replicas.

For clusters with ZooKeeper; last in Kafka 3.9.

    1  whether the replica is new (KIP-112)         5  topic ids; a type for full requests (KIP-516)
    2  broker epoch; grouped by topic (KIP-380)     6  leader recovery state (KIP-704)
    3  adding and removing replicas (KIP-455)       7  whether the controller is a KRaft one (KIP-866)
    4  flexible
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LEADER_AND_ISR, versions=(0, 7), flexible=4)
class LeaderAndIsrRequest(Message):
    controller_id: Int32
    is_kraft_controller: bool = since(7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)
    type: Int8 = since(5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since(until=1, default_factory=list)
    topic_states: list[LeaderAndIsrTopicState] = since(2, default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


@struct
class LeaderAndIsrPartitionState(Struct):
    topic_name: str = since(until=1, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = since(3, default_factory=list, ignorable=True)
    removing_replicas: list[Int32] = since(3, default_factory=list, ignorable=True)
    is_new: bool = since(1, default=False, ignorable=True)
    leader_recovery_state: Int8 = since(6, default=0)


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: str
    topic_id: UUID = since(5, default=NULL_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32
    host_name: str
    port: Int32


@message(ApiKey.LEADER_AND_ISR, versions=(0, 7), flexible=4)
class LeaderAndIsrResponse(Message):
    error_code: Int16 = 0
    partition_errors: list[LeaderAndIsrPartitionError] = since(until=4, default_factory=list)
    topics: list[LeaderAndIsrTopicError] = since(5, default_factory=list)


@struct
class LeaderAndIsrPartitionError(Struct):
    topic_name: str = since(until=4, default="", ignorable=True)
    partition_index: Int32
    error_code: Int16 = 0


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: UUID
    partition_errors: list[LeaderAndIsrPartitionError]
