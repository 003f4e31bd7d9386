"""What a follower asks its leader for beside records: where a log begins and ends, and where leader epochs end."""

from collections.abc import Mapping
from typing import Final

from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.leader_epochs import EpochEnd
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LIST_OFFSETS_VERSION: Final = 8
EPOCH_END_VERSION: Final = 4
"""These are the newest of Kafka 3.9, which may lead what this broker follows."""
LATEST, EARLIEST = -1, -2


def offset_request(
    replica: BrokerId, at: TopicPartition, leader_epoch: LeaderEpoch, timestamp: int
) -> ListOffsetsRequest:
    """Asks where the leader's log ends (`LATEST`) or begins (`EARLIEST`)."""
    wanted = ListOffsetsPartition(partition_index=at.partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=replica, isolation_level=0, topics=[ListOffsetsTopic(name=at.topic, partitions=[wanted])]
    )


def listed_offset(answer: ListOffsetsResponse, leader: BrokerId) -> Offset:
    """Raises `ApiError` if the leader does not say."""
    found = answer.topics[0].partitions[0]
    _refuse(found.error_code, leader, "its log begins and ends")
    return Offset(found.offset)


def epoch_ends_request(
    replica: BrokerId, asked: Mapping[TopicPartition, tuple[LeaderEpoch, LeaderEpoch]]
) -> OffsetForLeaderEpochRequest:
    """Asks for the last epoch up to one in the leader's logs, and where it ends: `asked` has of each partition its
    leader epoch, and that one."""
    topics: dict[TopicName, OffsetForLeaderTopic] = {}
    for at, (leader_epoch, epoch) in asked.items():
        topic = topics.setdefault(at.topic, OffsetForLeaderTopic(topic=at.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(partition=at.partition, current_leader_epoch=leader_epoch, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(replica_id=replica, topics=list(topics.values()))


def epoch_ends(answer: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEndOffset]:
    """The answers by partition; see `epoch_end`."""
    return {
        TopicPartition(TopicName(topic.topic), PartitionId(found.partition)): found
        for topic in answer.topics
        for found in topic.partitions
    }


def epoch_end(found: EpochEndOffset | None, leader: BrokerId) -> EpochEnd:
    """Raises `ApiError` if the leader does not say; (-1, -1) if it knows no such epoch."""
    _refuse(ErrorCode.UNKNOWN_SERVER_ERROR if found is None else found.error_code, leader, "a leader epoch ends")
    assert found is not None
    return EpochEnd(LeaderEpoch(found.leader_epoch), Offset(found.end_offset))


def _refuse(error_code: int, leader: BrokerId, what: str) -> None:
    if error_code:
        code = ErrorCode(error_code)
        raise ApiError(code, f"broker {leader} does not report where {what}: {code.name}")
