"""AlterReplicaLogDirs (v1-v2): move replicas to other log directories of this broker (KIP-113)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.server.context import RequestContext
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.replication.alter_log_dirs import AlterLogDirs
    from ottla.slices import Slices


async def handle(
    alter_log_dirs: "AlterLogDirs", slices: "Slices", request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Answered when the moves have begun; DescribeLogDirs shows their progress."""
    return await slices.run(_move(alter_log_dirs, request, context))


def _move(
    alter_log_dirs: "AlterLogDirs", request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Steps[AlterReplicaLogDirsResponse]:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                code = ErrorCode.NONE
                try:
                    alter_log_dirs.move(TopicPartition(TopicName(topic.name), PartitionId(number)), directory.path)
                except OttlaError as refused:
                    code = refused.code
                result = AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                results.setdefault(topic.name, []).append(result)
                yield
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )
