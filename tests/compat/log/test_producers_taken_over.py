"""Producers whose log one implementation wrote until it was killed, and the other goes on with: what was sent already
is not appended again, whatever snapshots of producers there are.

A story is drawn from a seed: producers with epochs, sequences that begin anew behind the largest, transactions, batches
that fill segments. The log's batches tell what has to be known in the end.
"""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.evidence import Batch, appended_twice, batches
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.stories import produce

from ottla.clock import SystemClock
from ottla.config.log import LogConfig
from ottla.errors import ErrorCode
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.log import checkpoints
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerEntry
from ottla.protocol.messages import write_txn_markers as wm
from ottla.records.batch import iter_batches
from ottla.records.record import Record, encode_batch

FS: Final = RealFileSystem()
TOPIC: Final = "t"
PARTITIONS: Final = 5
SEGMENT_BYTES: Final = 1 << 20  # the least that Kafka takes
FILLER: Final = bytes(150_000)
SEQUENCES: Final = 1 << 31
STEPS: Final = 80
SETTINGS: Final = {
    "segment.bytes": str(SEGMENT_BYTES),
    "transaction.partition.verification.enable": "false",  # the story's producers have no coordinator
    "log.flush.offset.checkpoint.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
RETRIABLE: Final = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
NOW_MS: Final = SystemClock().now_ms()


class Known(NamedTuple):
    """What has to be known of a producer."""

    epoch: int
    last_sequence: int
    last_offset: int
    transaction_first_offset: int | None


class Step(NamedTuple):
    """A batch, or with `commits` the end of a transaction."""

    producer_id: int
    epoch: int
    sequence: int = -1
    records: int = 0
    transactional: bool = False
    fills: bool = False
    commits: bool | None = None

    def batch(self) -> bytes:
        values = [FILLER if self.fills else b"%d" % place for place in range(self.records)]
        return bytes(
            encode_batch(
                [Record(place, NOW_MS, None, value) for place, value in enumerate(values)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=self.transactional,
            )
        )


@dataclass
class _Producer:
    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False


@dataclass
class Story:
    """What producers 1 to 6 do, as the seed has it; 4 to 6 are transactional. 1 and 4 begin shortly before the largest
    sequence, and fall silent half-way: they are known by a snapshot alone to a recovery of the last segment."""

    seed: int
    steps: int = STEPS
    producers: dict[int, _Producer] = field(default_factory=lambda: {number: _Producer() for number in range(1, 7)})

    def __iter__(self) -> Iterator[Step]:
        random = Random(self.seed)
        for number in (1, 4):
            self.producers[number].next_sequence = SEQUENCES - 3
        for place in range(self.steps):
            number = random.choice([2, 3, 5, 6] if place > self.steps // 2 else list(self.producers))
            producer = self.producers[number]
            what = random.random()
            if producer.in_transaction and what < 0.3:
                producer.in_transaction = False
                yield Step(number, producer.epoch, commits=random.random() < 0.5)
                continue
            if not producer.in_transaction and what < 0.1:
                producer.epoch, producer.next_sequence = producer.epoch + 1, 0
            producer.in_transaction = number > 3
            records = random.randint(1, 3)
            sequence = producer.next_sequence
            producer.next_sequence = (sequence + records) % SEQUENCES
            yield Step(number, producer.epoch, sequence, records, number > 3, fills=random.random() < 0.2)


def known(partition: Path) -> dict[int, Known]:
    """By producer id, from the batches of the log alone."""
    found: dict[int, Known] = {}
    for file in sorted(partition.glob("*.log")):
        for header in iter_batches(file.read_bytes(), allow_partial_end=True):
            if header.producer_id < 0:
                continue
            before = found.get(header.producer_id, Known(-1, -1, -1, None))
            if header.is_control:
                kept = before if before.epoch == header.producer_epoch else Known(header.producer_epoch, -1, -1, None)
                found[header.producer_id] = kept._replace(transaction_first_offset=None)
                continue
            first = before.transaction_first_offset
            if header.is_transactional and first is None:
                first = header.base_offset
            found[header.producer_id] = Known(header.producer_epoch, header.last_sequence, header.last_offset, first)
    return found


def as_known(entry: ProducerEntry) -> Known:
    last_offset = entry.batches[-1].last_offset if entry.batches else -1
    return Known(entry.epoch, entry.last_sequence, last_offset, entry.transaction_first_offset)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GenuineKafka]:
    with GenuineKafka(
        tmp_path_factory.mktemp("kafka"),
        properties={name: value for name, value in SETTINGS.items() if name != "segment.bytes"},
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        new = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": SETTINGS["segment.bytes"]})
        admin.create_topics([new])[TOPIC].result(60)
        yield broker


def send(broker: BrokerProcess, partition: int, batch: bytes) -> tuple[ErrorCode, int]:
    """Its error and base offset."""

    def answer() -> tuple[ErrorCode, int] | None:
        request = produce([(TOPIC, partition, batch)], transactional_id="story")
        (response,) = ask(broker.bootstrap, request, 9).responses
        (part,) = response.partition_responses
        error = ErrorCode(part.error_code)
        return None if error in RETRIABLE else (error, part.base_offset)

    return eventually(answer, timeout_s=60)


def end_transaction(broker: BrokerProcess, partition: int, step: Step) -> None:
    marker = wm.WritableTxnMarker(
        producer_id=step.producer_id,
        producer_epoch=step.epoch,
        transaction_result=bool(step.commits),
        topics=[wm.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[partition])],
        coordinator_epoch=0,
    )
    (answer,) = ask(broker.bootstrap, wm.WriteTxnMarkersRequest(markers=[marker]), 1).markers
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def tell(broker: BrokerProcess, partition: int, story: Iterable[Step]) -> None:
    for step in story:
        if step.commits is None:
            error, _ = send(broker, partition, step.batch())
            assert error is ErrorCode.NONE
        else:
            end_transaction(broker, partition, step)


def open_log(partition: Path) -> PartitionLog:
    return PartitionLog.open(
        partition,
        TopicPartition(TopicName(TOPIC), PartitionId(0)),
        LogConfig(segment_bytes=SEGMENT_BYTES),
        fs=FS,
        clock=SystemClock(),
    )


def cuts(partition: Path) -> list[int]:
    """Sizes of the active segment's file: at every batch, and in the middle of it, as a power failure may leave it."""
    data = max(partition.glob("*.log")).read_bytes()
    ends = [header.end_position for header in iter_batches(data, allow_partial_end=True)]
    return sorted({0, *ends, *(end - 7 for end in ends)})


@pytest.mark.timeout(300)
def test_ottla_goes_on_with_what_a_killed_kafka_wrote(kafka: GenuineKafka, tmp_path: Path) -> None:
    """Cut off anywhere, and with any one of the snapshots, all of them or none."""
    tell(kafka, 0, Story(0))
    kafka.kill()
    partition = kafka.log_dir / f"{TOPIC}-0"
    snapshots = [file.name for file in partition.glob("*.snapshot")]
    assert len(snapshots) > 1
    for size in cuts(partition):
        for kept in (snapshots, [], *([name] for name in snapshots)):
            copy = tmp_path / partition.name
            shutil.copytree(partition, copy, ignore=shutil.ignore_patterns(*set(snapshots) - set(kept)))
            with max(copy.glob("*.log")).open("r+b") as file:
                file.truncate(size)
            log = open_log(copy)
            state = {each: as_known(entry) for each, entry in log.producer_state.producers.items()}
            assert state == known(copy)
            log.release()
            shutil.rmtree(copy)
    kafka.start()


def last_batches(log_dir: Path, partition: int) -> dict[int, Batch]:
    """The last batch of each producer, by its id, where nothing has begun another epoch since."""
    found: dict[int, Batch] = {}
    for batch in batches(log_dir, TOPIC):
        if batch.partition == f"{TOPIC}-{partition}" and batch.header.producer_id >= 0:
            if not batch.header.is_control:
                found[batch.header.producer_id] = batch
            elif (
                last := found.get(batch.header.producer_id)
            ) and last.header.producer_epoch < batch.header.producer_epoch:
                del found[batch.header.producer_id]
    return found


def last_is_synced(log_dir: Path, partition: int) -> bool:
    """Whether the checkpoint says so of something in the last segment: a recovery begins there, with a snapshot."""
    name = TopicPartition(TopicName(TOPIC), PartitionId(partition))
    begins = int(max((log_dir / str(name)).glob("*.log")).stem)
    points = checkpoints.read_offsets(FS, str(log_dir / "recovery-point-offset-checkpoint"))
    return points.get(name, 0) > begins > 0


@pytest.mark.timeout(300)
def test_kafka_goes_on_with_what_a_killed_ottla_wrote(kafka: GenuineKafka) -> None:
    """With the snapshots as they are, with the oldest alone, without any; and with those of a log that ended later."""
    kafka.stop()
    whole, oldest, without, shorter = 1, 2, 3, 4
    with OttlaProcess(properties={**SETTINGS, "log.dirs": str(kafka.log_dir)}) as ottla:
        for number in (whole, oldest, without, shorter):
            tell(ottla, number, Story(number))
        eventually(lambda: all(last_is_synced(kafka.log_dir, number) for number in (whole, oldest, without, shorter)))
        ottla.kill()
    for number in (oldest, without):
        snapshots = sorted((kafka.log_dir / f"{TOPIC}-{number}").glob("*.snapshot"))
        assert snapshots
        for snapshot in snapshots[number == oldest :]:
            snapshot.unlink()
    files = sorted((kafka.log_dir / f"{TOPIC}-{shorter}").glob("*.log"))
    files[-1].unlink()  # its snapshot is as new as the end of the log before it
    first, *_ = iter_batches(files[-2].read_bytes(), allow_partial_end=True)
    with files[-2].open("r+b") as file:
        file.truncate(first.end_position)
    expected = {number: known(kafka.log_dir / f"{TOPIC}-{number}") for number in (whole, oldest, without, shorter)}
    last = {number: last_batches(kafka.log_dir, number) for number in expected}
    assert all(last.values())
    kafka.start()
    for number, producers in last.items():
        for producer_id, batch in producers.items():
            header = batch.header
            assert expected[number][producer_id].last_offset == header.last_offset
            as_sent = bytes(8) + batch.data[8:]  # a client begins at offset 0
            assert send(kafka, number, as_sent) == (ErrorCode.NONE, header.base_offset)
            following = Step(
                producer_id, header.producer_epoch, (header.last_sequence + 1) % SEQUENCES, 1, header.is_transactional
            )
            gap = following._replace(sequence=(following.sequence + 1) % SEQUENCES)
            assert send(kafka, number, gap.batch())[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert send(kafka, number, following.batch())[0] is ErrorCode.NONE
    assert appended_twice(batches(kafka.log_dir, TOPIC)) == []
