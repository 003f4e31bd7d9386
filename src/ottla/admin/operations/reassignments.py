"""Partitions that move between brokers (KIP-455) and between the directories of a broker (KIP-113). PURE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import NotFound, RequestRefused, refusal
from ottla.admin.operations.cluster import Cluster, Replicas
from ottla.admin.operations.core import Ask, Operation, ask_controller, by_topic
from ottla.client.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_PARTITIONS_AT_ONCE: Final = 500
_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is being moved: all its replicas, old and new, and which of them come and go."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas


def list_reassignments() -> Operation[dict[Partition, Reassignment]]:
    """List the partitions that are being moved at this moment. Raises `ClientError`."""
    request = ListPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=None)
    answer: ListPartitionReassignmentsResponse = yield from ask_controller(request)
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"the controller does not list reassignments: {reason}", answer.error_code)
    return {
        Partition(topic.name, part.partition_index): Reassignment(
            tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
        )
        for topic in answer.topics
        for part in topic.partitions
    }


def alter_reassignments(
    targets: Mapping[Partition, Sequence[int] | None],
) -> Operation[dict[Partition, RequestRefused]]:
    """Have partitions moved to these brokers, the preferred leader first; None cancels the move that is under way.

    Returns the refusals, by partition; all others have begun. Raises `ClientError` if the controller refuses the
    request as a whole.
    """
    refused: dict[Partition, RequestRefused] = {}
    wanted = list(targets.items())
    for start in range(0, len(wanted), _PARTITIONS_AT_ONCE):
        refused |= yield from _alter(dict(wanted[start : start + _PARTITIONS_AT_ONCE]))
    return refused


def _alter(targets: Mapping[Partition, Sequence[int] | None]) -> Operation[dict[Partition, RequestRefused]]:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        topics.setdefault(topic, []).append(
            ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
        )
    answer: AlterPartitionReassignmentsResponse = yield from ask_controller(
        AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[ReassignableTopic(name=topic, partitions=parts) for topic, parts in topics.items()],
        )
    )
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"nothing is moved: {reason}", answer.error_code)
    return {
        Partition(topic.name, part.partition_index): RequestRefused(
            refusal(part.error_code, part.error_message), part.error_code
        )
        for topic in answer.responses
        for part in topic.partitions
        if part.error_code
    }


def place_replicas(
    cluster: Cluster, places: Mapping[int, Mapping[Partition, str]]
) -> Operation[dict[Partition, RequestRefused]]:
    """Have replicas, also those to come, lie in these log directories, by the id of the broker and the partition.

    Returns the refusals, by partition. Raises `NotFound` for a broker that is not running, `ClientError`.
    """
    refused: dict[Partition, RequestRefused] = {}
    for broker, directories in places.items():
        if broker not in cluster.brokers:
            raise NotFound(f"broker {broker}, for which a directory is given, is not running")
        by_directory: dict[str, list[Partition]] = {}
        for partition, directory in directories.items():
            by_directory.setdefault(directory, []).append(partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=directory,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                        for topic, numbers in by_topic(partitions).items()
                    ],
                )
                for directory, partitions in by_directory.items()
            ]
        )
        answer: AlterReplicaLogDirsResponse = yield Ask(request, cluster.brokers[broker].address)
        for topic in answer.results:
            for part in topic.partitions:
                if part.error_code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    at = Partition(topic.topic_name, part.partition_index)
                    reason = f"broker {broker}: {refusal(part.error_code)}"
                    refused[at] = RequestRefused(reason, part.error_code)
    return refused
