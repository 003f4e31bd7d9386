"""What a follower asks its leader for beside records."""

import pytest

from ottla.errors import ApiError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.replication.leader_questions import epoch_end, epoch_ends, epoch_ends_request

LEADER = BrokerId(1)


def _at(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(number))


def test_one_request_asks_about_many_partitions() -> None:
    wanted = {_at("a", 0): (7, 3), _at("b", 0): (5, 0), _at("a", 4): (6, 2)}
    request = epoch_ends_request(
        BrokerId(2), {at: (LeaderEpoch(leader), LeaderEpoch(epoch)) for at, (leader, epoch) in wanted.items()}
    )
    assert request.replica_id == 2
    assert [topic.topic for topic in request.topics] == ["a", "b"]
    asked = {
        _at(topic.topic, each.partition): (each.current_leader_epoch, each.leader_epoch)
        for topic in request.topics
        for each in topic.partitions
    }
    assert asked == wanted


def test_each_partition_has_its_own_answer() -> None:
    """A leader that refuses one, or leaves one out, has answered the others."""
    found = [EpochEndOffset(partition=0, leader_epoch=3, end_offset=9), EpochEndOffset(partition=4, error_code=6)]
    ends = epoch_ends(OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="a", partitions=found)]))
    assert epoch_end(ends.get(_at("a", 0)), LEADER) == (3, 9)
    with pytest.raises(ApiError, match="broker 1 does not report where a leader epoch ends: NOT_LEADER_OR_FOLLOWER"):
        epoch_end(ends.get(_at("a", 4)), LEADER)
    with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
        epoch_end(ends.get(_at("b", 0)), LEADER)
