"""ElectLeaders (v0-v2): have partitions led by their preferred replica, or uncleanly by any that is alive (KIP-460)."""

from typing import TYPE_CHECKING, Final

from ottla.cluster.controller import ElectionType
from ottla.errors import ErrorCode
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices

ELECTION_TYPES: Final = {int(election): election for election in ElectionType}


async def handle(
    metadata: "MetadataView", slices: "Slices", request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Null asks for all partitions; then those that need no election are not mentioned."""
    asked_for_all = request.topic_partitions is None
    asked = (
        [(topic.name, range(len(topic.partitions))) for topic in metadata.image.topics.values()]
        if request.topic_partitions is None
        else [(TopicName(topic.topic), topic.partitions) for topic in request.topic_partitions]
    )
    election = ELECTION_TYPES.get(request.election_type)
    if election is None:
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        return ElectLeadersResponse(
            error_code=code,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=name,
                    partition_result=[
                        PartitionResult(partition_id=number, error_code=code, error_message=message)
                        for number in numbers
                    ],
                )
                for name, numbers in asked
            ],
        )
    pause = slices.pause
    wanted: list[TopicPartition] = []
    for name, numbers in asked:
        for number in numbers:
            await pause()
            wanted.append(TopicPartition(name, PartitionId(number)))
    answers = iter(await metadata.elect_leaders(wanted, election))
    results: list[ReplicaElectionResult] = []
    for name, numbers in asked:
        partitions: list[PartitionResult] = []
        for number in numbers:
            await pause()
            refused = next(answers)
            if refused is None:
                partitions.append(PartitionResult(partition_id=number))
            elif not (asked_for_all and refused.code is ErrorCode.ELECTION_NOT_NEEDED):
                partitions.append(
                    PartitionResult(partition_id=number, error_code=refused.code, error_message=str(refused))
                )
        results.append(ReplicaElectionResult(topic=name, partition_result=partitions))
    return ElectLeadersResponse(replica_election_results=results)
