"""What must hold from one start of a broker to the next: records that were deleted stay so, topics are not mixed up."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.raw_client import ask

from ottla.log.directories import LogDirectories
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.primitives import NULL_UUID
from ottla.records.record import Record, encode_batch
from ottla.testing import Broker

EARLIEST, LATEST = -2, -1


def create(broker: Broker, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    (result,) = ask(broker.bootstrap, CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == 0, result


def delete(broker: Broker, name: str) -> None:
    topic = DeleteTopicState(name=name, topic_id=NULL_UUID)
    (result,) = ask(broker.bootstrap, DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6).responses
    assert result.error_code == 0, result


def produce(broker: Broker, name: str, count: int) -> int:
    """Base offset of a batch of `count` records, acknowledged by all."""
    batch = bytes(encode_batch([Record(number, 0, None, b"v") for number in range(count)]))
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = ask(broker.bootstrap, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == 0, partition
    return int(partition.base_offset)


def offset(broker: Broker, name: str, timestamp: int) -> int:
    wanted = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer = ask(broker.bootstrap, ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == 0, partition
    return int(partition.offset)


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    with broker:
        create(broker, "trimmed")
        produce(broker, "trimmed", 10)
        before_five = DeleteRecordsTopic(
            name="trimmed", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)]
        )
        ask(broker.bootstrap, DeleteRecordsRequest(topics=[before_five], timeout_ms=1000), 2)
    for _ in range(2):
        with broker:
            assert offset(broker, "trimmed", EARLIEST) == 5
            assert offset(broker, "trimmed", LATEST) == 10


def test_what_a_deleted_topic_left_behind_is_never_served_under_its_name(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    broker = Broker(directory=data)
    with broker:
        create(broker, "again")
        produce(broker, "again", 10)
    shutil.copytree(data / "again-0", copy)
    with broker:
        delete(broker, "again")
    shutil.copytree(copy, data / "again-0")  # as if a crash had come between the two halves of the deletion
    with broker:
        create(broker, "again")
        assert produce(broker, "again", 1) == 0
    shutil.rmtree(data / "again-0")
    shutil.copytree(copy, data / "again-0")  # ... and the topic had been made anew before that
    with broker:
        assert offset(broker, "again", LATEST) == 0
        assert produce(broker, "again", 1) == 0
    assert len(list(data.glob("again-0.*-stray"))) == 2


def test_a_topic_that_grows_while_it_is_made_has_every_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[Any] = Counter()
    choose = LogDirectories._for_new

    def counted(self: LogDirectories, partition: Any) -> Any:
        made[partition] += 1
        return choose(self, partition)

    monkeypatch.setattr(LogDirectories, "_for_new", counted)
    broker = Broker(directory=tmp_path)
    with broker:
        create(broker, "growing", 400)
        grown = CreatePartitionsTopic(name="growing", count=500, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
        (result,) = ask(broker.bootstrap, request, 3).results
        assert result.error_code == 0, result
    assert set(made.values()) == {1}
