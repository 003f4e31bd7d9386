"""AlterReplicaLogDirs: move replicas between the log directories of a broker (KIP-113).

2  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDir(Struct):
    path: str
    topics: list[AlterReplicaLogDirTopic]


@struct
class AlterReplicaLogDirTopic(Struct):
    name: str
    partitions: list[Int32]


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = 0
