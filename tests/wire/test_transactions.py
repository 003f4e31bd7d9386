"""Transactions over a socket, where no client library goes: pipelined batches, markers, what outlives a restart."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import stories
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, RawConnection, ask, errors_in
from tests.support.transaction_stories import Producer, Teller

from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records
from ottla.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with Broker(config=config, allow_insecure=True) as broker:  # markers are sent as by coordinators
        Teller(broker.bootstrap).ready()
        yield broker


@pytest.fixture
def teller(broker: Broker) -> Teller:
    return Teller(broker.bootstrap)


@pytest.fixture
def topic(teller: Teller, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    teller.create(name, 2)
    return name


def batch(producer: Producer, sequence: int, value: bytes, *, transactional: bool = True) -> bytes:
    return stories.batch(
        value,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(topic: str, producer: Producer, sequence: int, value: bytes, partition: int = 0) -> Any:
    return stories.produce([(topic, partition, batch(producer, sequence, value))], transactional_id=producer.name)


def fetched(bootstrap: str, topic: str, partition: int = 0, *, committed: bool = False) -> list[bytes]:
    wanted = stories.fetch([(topic, partition, 0)], isolation_level=int(committed))
    (answer,) = ask(bootstrap, wanted, 11).responses[0].partitions
    return [
        record.value or b""
        for header in iter_batches(answer.records or b"", allow_partial_end=True)
        if not header.is_control
        for record in decode_records(answer.records, header)
    ]


def mark(
    bootstrap: str, producer: Producer, *places: tuple[str, int], commit: bool = True, coordinator: int = 0
) -> Any:
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition]) for topic, partition in places],
    )
    return ask(bootstrap, WriteTxnMarkersRequest(markers=[marker]), 1)


def offsets(bootstrap: str, group: str, topic: str) -> list[int]:
    """What is committed in partition 0; nothing while it is not stable."""
    wanted = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    (answer,) = ask(bootstrap, OffsetFetchRequest(groups=[wanted], require_stable=True), 8).groups
    return [part.committed_offset for each in answer.topics for part in each.partitions if not part.error_code]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_batches_that_are_sent_at_once_stay_in_order(broker: Broker, teller: Teller, topic: str, version: int) -> None:
    """The first one waits for the coordinator, and those behind it wait for the first one."""
    producer = teller.new(topic)
    if version < 12:
        teller.add("begin", producer, [(topic, 0), (topic, 1)])
    requests = [produce(topic, producer, number // 2, b"%d" % number, number % 2) for number in range(10)]
    with RawConnection(broker.bootstrap) as connection:
        for request in requests:
            connection.send(request, version)
        for request in requests:
            assert errors_in(connection.receive(request, version)) == set()
    for partition in (0, 1):
        assert fetched(broker.bootstrap, topic, partition) == [b"%d" % number for number in range(partition, 10, 2)]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_records_of_no_transaction_are_refused(
    broker: Broker, teller: Teller, topic: str, version: int, error: ErrorCode
) -> None:
    producer = teller.new(topic)
    request = produce(topic, producer, 0, b"late")
    assert errors_in(ask(broker.bootstrap, request, version)) == {error}
    assert fetched(broker.bootstrap, topic) == []
    teller.add("begin", producer, [(topic, 0)])
    assert errors_in(ask(broker.bootstrap, request, version)) == set()
    teller.end("end", producer, commit=True)
    later = produce(topic, producer, 1, b"later")
    eventually(lambda: errors_in(ask(broker.bootstrap, later, version)) == {error})  # once the end is complete
    assert fetched(broker.bootstrap, topic) == [b"late"]


def test_nothing_transactional_without_an_id_or_of_two_producers(broker: Broker, teller: Teller, topic: str) -> None:
    producer, other = teller.new(topic), teller.new(topic + "-other")
    teller.add("begin", producer, [(topic, 0), (topic, 1)])
    records = batch(producer, 0, b"a")
    anonymous = stories.produce([(topic, 0, records), (topic, 1, stories.batch(b"plain"))])
    assert errors_in(ask(broker.bootstrap, anonymous, 9)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    mixed = stories.produce([(topic, 0, records), (topic, 1, batch(other, 0, b"b"))], transactional_id=topic)
    assert errors_in(ask(broker.bootstrap, mixed, 9)) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert fetched(broker.bootstrap, topic) == fetched(broker.bootstrap, topic, 1) == []


def test_one_partition_of_a_request_may_be_refused(broker: Broker, teller: Teller, topic: str) -> None:
    producer = teller.new(topic)
    teller.add("begin", producer, [(topic, 0)])
    both = [(topic, number, batch(producer, 0, b"a")) for number in (0, 1)]
    (first, second) = ask(broker.bootstrap, stories.produce(both, transactional_id=topic), 11).responses
    assert errors_in(first) == set()
    assert errors_in(second) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert "is not known to be in the transaction" in second.partition_responses[0].error_message
    assert (fetched(broker.bootstrap, topic), fetched(broker.bootstrap, topic, 1)) == ([b"a"], [])


@pytest.mark.parametrize("version", [9, 12])
def test_who_wants_no_answer_gets_none(broker: Broker, teller: Teller, topic: str, version: int) -> None:
    """No client sends transactional records with acks=0; what is refused closes the connection, as in Kafka."""
    producer = teller.new(topic)
    if version < 12:
        teller.add("begin", producer, [(topic, 0)])
    with RawConnection(broker.bootstrap) as connection:
        for sequence in (0, 1):
            records = [(topic, 0, batch(producer, sequence, b"%d" % sequence))]
            connection.send(stories.produce(records, acks=0, transactional_id=topic), version)
        ends = stories.list_offsets([(topic, 0, -1)])
        eventually(lambda: connection.ask(ends, 7).topics[0].partitions[0].offset == 2)
        wrong = [(topic, 1, batch(producer.older(), 0, b"no"))]
        connection.send(stories.produce(wrong, acks=0, transactional_id=topic), version)
        with pytest.raises(ClosedError):
            connection.ask(ends, 7)


def test_readers_of_committed_records_wait_for_the_marker(broker: Broker, teller: Teller, topic: str) -> None:
    producer = teller.new(topic)
    teller.add("begin", producer, [(topic, 0)])
    ask(broker.bootstrap, produce(topic, producer, 0, b"a"), 11)
    teller.fill(topic, stories.batch(b"behind"))
    assert fetched(broker.bootstrap, topic) == [b"a", b"behind"]
    assert fetched(broker.bootstrap, topic, committed=True) == []
    waiting = stories.fetch([(topic, 0, 0)], isolation_level=1, max_wait_ms=10_000)
    with RawConnection(broker.bootstrap) as connection:
        connection.send(waiting, 11)
        teller.end("end", producer, commit=True)
        (answer,) = connection.receive(waiting, 11).responses[0].partitions
    assert (answer.last_stable_offset, len(list(iter_batches(answer.records)))) == (3, 3)


def test_markers_where_none_can_be_written(broker: Broker, teller: Teller, topic: str) -> None:
    producer = teller.new(topic)
    gone, elsewhere = (topic, 7), ("never-was", 0)
    answer = mark(broker.bootstrap, producer, (topic, 0), gone, elsewhere, coordinator=5)
    codes = {
        (each.name, part.partition_index): ErrorCode(part.error_code)
        for each in answer.markers[0].topics
        for part in each.partitions
    }
    assert codes == {
        (topic, 0): ErrorCode.NONE,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        elsewhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    late = mark(broker.bootstrap, producer, (topic, 0), coordinator=4)
    assert errors_in(late) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert errors_in(mark(broker.bootstrap, producer.older(), (topic, 0))) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    mark(broker.bootstrap, producer.older(-2), (topic, 0), coordinator=5)
    fenced = mark(broker.bootstrap, producer.older(-1), (topic, 0), coordinator=5)
    assert errors_in(fenced) == {ErrorCode.INVALID_PRODUCER_EPOCH}


def test_markers_of_offsets(broker: Broker, teller: Teller, topic: str) -> None:
    """Through the group coordinator: what a marker commits is in force when it is answered."""
    producer = teller.new(topic)
    teller.add_group("begin", producer, topic)
    teller.commit_offsets("commit", producer, topic, [(topic, 0, 5)])
    places = [("__consumer_offsets", number) for number in range(2)]
    assert errors_in(mark(broker.bootstrap, producer, *places)) == set()
    assert offsets(broker.bootstrap, topic, topic) == [5]
    assert errors_in(mark(broker.bootstrap, producer, *places, commit=False)) == set()
    late = mark(broker.bootstrap, producer, *places, coordinator=-1)
    assert errors_in(late) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_outlives_its_broker(tmp_path: Path, commit: bool) -> None:
    config = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Broker(directory=tmp_path, config=config) as broker:
        teller = Teller(broker.bootstrap)
        teller.ready()
        teller.create("t", 1)
        producer = teller.new("x")
        teller.add("begin", producer, [("t", 0)])
        teller.add_group("begin", producer, "g")
        assert errors_in(ask(broker.bootstrap, produce("t", producer, 0, b"a"), 11)) == set()
        teller.commit_offsets("commit", producer, "g", [("t", 0, 5)])
    with Broker(directory=tmp_path, config=config) as broker:
        teller = Teller(broker.bootstrap)
        teller.fill("t", stories.batch(b"behind"))
        assert fetched(broker.bootstrap, "t", committed=True) == []
        request = produce("t", producer, 1, b"b")
        eventually(lambda: errors_in(ask(broker.bootstrap, request, 11)) == set())
        teller.end("end", producer, commit=commit)
        eventually(lambda: len(fetched(broker.bootstrap, "t", committed=True)) == 3)  # a, behind, b
        (answer,) = ask(broker.bootstrap, stories.fetch([("t", 0, 0)], isolation_level=1), 11).responses[0].partitions
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert aborted == ([] if commit else [(producer.id, 0)])
        committed_offset = 5 if commit else -1
        eventually(lambda: offsets(broker.bootstrap, "g", "t") == [committed_offset])


def test_offsets_of_transactions_survive_the_compaction_of_their_topic(tmp_path: Path) -> None:
    """Whatever compaction leaves of records and markers, who reads it knows what was committed."""
    config = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "50",
        "log.initial.task.delay.ms": "0",
        "log.roll.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    expected = {"g0": 0, "g1": 0, "g2": 0}
    with Broker(directory=tmp_path, config=config) as broker:
        teller = Teller(broker.bootstrap)
        teller.ready()
        teller.create("t", 1)
        producers = [teller.new(f"p{number}") for number in range(3)]
        for offset in range(30):
            producer, group = producers[offset % 3], f"g{offset // 2 % 3}"
            teller.add_group("begin", producer, group)
            teller.commit_offsets("commit", producer, group, [("t", 0, offset)])
            kept = offset % 4 != 1
            teller.end("end", producer, commit=kept)
            expected[group] = offset if kept else expected[group]
        time.sleep(0.15)  # so that a new segment begins
        teller.add_group("begin", producers[0], "open")
        teller.commit_offsets("commit", producers[0], "open", [("t", 0, 77)])

        def compacted() -> bool:
            """Up to the open transaction; segments are closed by what is written later."""
            other = teller.new("later")
            teller.add_group("begin", other, "later")
            teller.commit_offsets("commit", other, "later", [("t", 0, 1)])
            teller.end("end", other, commit=True)
            checkpoint = tmp_path / "cleaner-offset-checkpoint"
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            cleaned = {line.split()[0]: int(line.split()[2]) for line in lines if line.startswith("__")}
            return 30 < cleaned.get("__consumer_offsets", 0) <= 60 and cleaned.get("__transaction_state", 0) > 90

        eventually(compacted, interval_s=0.2)
    with Broker(directory=tmp_path, config=config) as broker:
        for group, offset in expected.items():
            assert eventually(lambda group=group: offsets(broker.bootstrap, group, "t")) == [offset]
        assert offsets(broker.bootstrap, "open", "t") == []
        Teller(broker.bootstrap).end("end", producers[0], commit=True)
        assert eventually(lambda: offsets(broker.bootstrap, "open", "t")) == [77]
