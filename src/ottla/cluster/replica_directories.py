"""PURE. Which log directory of a broker holds a replica, as the broker reports it (AssignReplicasToDirs, KIP-858).

A replica in a directory that its broker does not have online counts as failed. The broker reports one in a full
directory in the directory's mark while another replica can lead: it neither leads nor is in sync, but has its records
(ADR 17). Source: Kafka 4.3,
`ReplicationControlManager.handleAssignReplicasToDirs`.
"""

from collections.abc import Container, Mapping
from uuid import UUID

from ottla.cluster.image import NO_LEADER
from ottla.cluster.metadata_log.partitions import LOST, PartitionState, marked_full
from ottla.cluster.metadata_log.topics import TopicState
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.compiled import Steps
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.metadata_records import PartitionChangeRecord

Assigned = dict[tuple[UUID, int], tuple[UUID, ...]]
"""The directories of partitions that earlier parts of a request have changed."""


def plan_assignments(
    topics: Mapping[UUID, TopicState], request: AssignReplicasToDirsRequest
) -> Steps[tuple[list[PartitionChangeRecord], AssignReplicasToDirsResponse]]:
    """The records of what a request changes, and its answer: each partition on its own."""
    assigned: Assigned = {}
    records: dict[tuple[UUID, int], PartitionChangeRecord] = {}
    response = AssignReplicasToDirsResponse(directories=[])
    for directory in request.directories:
        answered = ResponseDirectoryData(id=directory.id, topics=[])
        response.directories.append(answered)
        for topic in directory.topics:
            answers: list[ResponsePartitionData] = []
            answered.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=answers))
            for asked in topic.partitions:
                at = topic.topic_id, asked.partition_index
                code = ErrorCode.NONE
                try:
                    record = plan_assignment(topics, request.broker_id, *at, directory.id, assigned)
                except ApiError as refused:
                    code = refused.code
                else:
                    if record is not None:
                        records[at] = record
                answers.append(ResponsePartitionData(partition_index=at[1], error_code=code))
                yield
    return list(records.values()), response


def plan_assignment(
    topics: Mapping[UUID, TopicState],
    broker_id: int,
    topic_id: UUID,
    partition: int,
    directory: UUID,
    assigned: Assigned,
) -> PartitionChangeRecord | None:
    """Note where a broker has its replica; None if that is known. `assigned` gets the change.

    Raises `ApiError`: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
    """
    topic = topics.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    state = topic.partitions.get(partition)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {partition}")
    at = next((nth for nth, replica in enumerate(state.image.replicas) if replica == broker_id), None)
    if at is None:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has no replica of {topic.name}-{partition}"
        )
    before = assigned.get((topic_id, partition), state.directories)
    if before[at] == directory:
        return None
    after = (*before[:at], directory, *before[at + 1 :])
    assigned[topic_id, partition] = after
    return PartitionChangeRecord(partition_id=partition, topic_id=topic_id, directories=list(after))


def reported_directory(
    state: PartitionState, broker_id: BrokerId, alive: Container[BrokerId], where: UUID, *, is_full: bool
) -> UUID:
    """The directory that a broker reports for its replica, which is in `where`.

    In a full directory that is the directory's mark, so that it neither leads nor is in sync, while another replica of
    `alive` brokers is in sync. One that has all records and nobody leads in its place is reported where it is: it leads
    again.
    """
    if not is_full:
        return where
    partition = state.image
    if broker_id in partition.isr:
        others = (replica for replica in partition.isr if replica != broker_id)
        return marked_full(where) if any(replica in alive for replica in others) else where
    if partition.leader == NO_LEADER and broker_id in (*partition.eligible, partition.last_known_leader):
        return where
    recorded = state.directories[partition.replicas.index(broker_id)]
    return recorded if recorded in (LOST, marked_full(where)) else where
