"""CreateTopics: by partition count and replication factor, or by explicit assignment.

4  -1 asks for the broker's default partition count and replication factor (KIP-464)
5  flexible; the answer carries the configuration of the new topic (KIP-525)
6  THROTTLING_QUOTA_EXCEEDED (KIP-599)
7  the answer carries the topic id
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopic(Struct):
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig(Struct):
    name: str
    value: str | None


@message(ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5)
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult]


@struct
class CreatableTopicResult(Struct):
    name: str
    topic_id: UUID = since(7, default=NULL_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = None
    topic_config_error_code: Int16 = since(5, tag=0, default=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = since(5, default_factory=list, ignorable=True)


@struct
class CreatableTopicConfigs(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
