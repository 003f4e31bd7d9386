"""What producers may send: garbage is refused with the reason, and no batch keeps other clients waiting."""

import os
import threading
import time
from collections.abc import Iterator
from struct import pack_into

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection, errors_in
from tests.support.stories import Teller

from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP_AT,
    Compression,
    seal,
)
from ottla.records.compression import compress
from ottla.records.record import Record, append_record, encode_batch
from ottla.server.handlers.produce import MANY

PLAIN, COMPACTED, OLD, ZSTD, WAITING = "plain", "compacted", "no-old-records", "zstd", "waiting"
VERSION = 9


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess() as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        settings = {
            PLAIN: {},
            COMPACTED: {"cleanup.policy": "compact"},
            OLD: {"message.timestamp.before.max.ms": "60000"},
            ZSTD: {"compression.type": "zstd"},
            WAITING: {},
        }
        topics = [NewTopic(name, 4, config=config) for name, config in settings.items()]
        for created in admin.create_topics(topics).values():
            created.result(10)
        yield process


@pytest.fixture
def client(broker: OttlaProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def request(*batches: tuple[str, int, bytes | bytearray]) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for topic, partition, records in batches:
        data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[]))
        data.partition_data.append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=list(topics.values()))


def produce(
    client: RawConnection, topic: str, records: bytes | bytearray, version: int = VERSION
) -> PartitionProduceResponse:
    response = client.ask(request((topic, 0, records)), version)
    answer = response.responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def end_offset(client: RawConnection, topic: str, partition: int = 0) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
    response = client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
    offset = response.topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


def raw_batch(
    payload: bytes, count: int, codec: Compression = Compression.NONE, deltas: int | None = None
) -> bytearray:
    """A batch with any bytes for records; its header and its CRC are as they should be."""
    batch = bytearray(HEADER_SIZE)
    last = count - 1 if deltas is None else deltas - 1
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    time_ms = now_ms()
    HEADER.pack_into(batch, 0, 0, length, -1, 2, 0, codec, last, time_ms, time_ms, -1, -1, -1, count)
    batch += payload
    seal(batch)
    return batch


def records_of(*rows: Record, deltas: list[int] | None = None) -> bytes:
    out = bytearray()
    for number, row in enumerate(rows):
        append_record(out, deltas[number] if deltas else number, row.timestamp_ms, row)
    return bytes(out)


ROW = Record(0, 0, b"k", b"v")


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("topic", [PLAIN, COMPACTED, ZSTD])
def test_garbage_is_refused(client: RawConnection, topic: str, codec: Compression) -> None:
    before = end_offset(client, topic)
    one = records_of(ROW)
    for payload, count in [
        (os.urandom(200), 5),
        (one, 1_000_000),
        (one, 2),
        (one * 2, 2),
        (one + b"\0", 1),
        (one[:-1], 1),
        (records_of(ROW, ROW, deltas=[0, 2]), 2),
        (b"", 1),
    ]:
        answer = produce(client, topic, raw_batch(compress(codec, payload), count, codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD, (payload, answer)
        assert answer.error_message
        assert answer.record_errors == []
        assert answer.base_offset == -1
    if codec:
        answer = produce(client, topic, raw_batch(os.urandom(200), 5, codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
    assert end_offset(client, topic) == before
    assert not produce(client, topic, raw_batch(compress(codec, one), 1, codec)).error_code


def test_flags_of_the_broker_are_refused(client: RawConnection) -> None:
    for flag in (DELETE_HORIZON_FLAG, 0x20, 0x08):
        batch = raw_batch(records_of(ROW), 1)
        pack_into(">h", batch, ATTRIBUTES_AT, flag)
        seal(batch)
        assert produce(client, PLAIN, batch).error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


@pytest.mark.parametrize("codec", Compression)
def test_a_largest_timestamp_that_is_not_the_records_is_corrected(client: RawConnection, codec: Compression) -> None:
    """As by Kafka: retention and searches by time would believe it."""
    batch = encode_batch([Record(0, now_ms(), b"k", b"v")], compression=codec)
    pack_into(">q", batch, MAX_TIMESTAMP_AT, 1)
    seal(batch)
    answer = produce(client, PLAIN, batch)
    assert not answer.error_code
    partition = ListOffsetsPartition(partition_index=0, timestamp=-3)  # the offset of the largest timestamp
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=PLAIN, partitions=[partition])])
    found = client.ask(asked, 7).topics[0].partitions[0]
    assert found.offset == answer.base_offset


@pytest.mark.parametrize("version", [3, 6, 7, 13])
def test_zstd_is_refused_before_version_7(client: RawConnection, version: int) -> None:
    if version == 13:
        return
    answer = produce(
        client, PLAIN, raw_batch(compress(Compression.ZSTD, records_of(ROW)), 1, Compression.ZSTD), version
    )
    assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_faulty_records_are_named(client: RawConnection, codec: Compression) -> None:
    time_ms = now_ms()
    rows = [Record(number, time_ms, b"k" if number % 3 else None, b"v") for number in range(10)]
    batch = encode_batch(rows, compression=codec)
    answer = produce(client, COMPACTED, batch)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 3, 6, 9]
    assert {error.batch_index_error_message for error in answer.record_errors} == {
        "a compacted topic takes no record without a key"
    }
    assert "4 of 10 records" in (answer.error_message or "")
    assert produce(client, COMPACTED, batch, 7).record_errors == []

    rows = [Record(number, time_ms - number * 100_000, b"k", b"v") for number in range(3)]
    answer = produce(client, OLD, encode_batch(rows, compression=codec))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1, 2]
    later = encode_batch([Record(0, time_ms, b"k", b"v"), Record(1, time_ms + 7_200_000, b"k", b"v")])
    answer = produce(client, PLAIN, later)
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_named_records_are_bounded(client: RawConnection) -> None:
    batch = encode_batch([Record(number, now_ms(), None, b"") for number in range(5000)])
    response = client.ask(request(*[(COMPACTED, number, batch) for number in range(4)]), VERSION)
    named = [len(answer.record_errors) for answer in response.responses[0].partition_responses]
    assert named[0] == 1024
    assert sum(named) <= 4096


def test_a_partition_named_twice_is_appended_once(client: RawConnection) -> None:
    """As in Kafka: the last records count, and there is one answer."""
    before = end_offset(client, PLAIN, 3)
    first, last = records_of(ROW), records_of(ROW, ROW)
    batches = [(PLAIN, 3, raw_batch(first, 1)), (PLAIN, 2, raw_batch(first, 1)), (PLAIN, 3, raw_batch(last, 2))]
    response = client.ask(request(*batches), VERSION)
    assert [answer.index for answer in response.responses[0].partition_responses] == [2, 3]
    assert end_offset(client, PLAIN, 3) == before + 2
    twice = request((PLAIN, 3, raw_batch(first, 1)))
    twice.topic_data += request((PLAIN, 3, raw_batch(last, 2))).topic_data
    (answer,) = client.ask(twice, VERSION).responses
    assert [(one.index, one.base_offset) for one in answer.partition_responses] == [(3, before + 2)]
    assert end_offset(client, PLAIN, 3) == before + 4


def test_large_batches_keep_their_order_and_those_behind_them(client: RawConnection) -> None:
    """Each of a producer's pipelined batches follows the one before, whether or not it is checked in a thread."""
    time_ms = now_ms()
    requests = []
    sequence = 0
    for number in range(12):
        count, codec = (20_000, Compression.GZIP) if number % 3 == 0 else (1, Compression(number % 5))
        rows = [Record(index, time_ms, b"%d" % index, os.urandom(8)) for index in range(count)]
        batch = encode_batch(
            rows, compression=codec, producer_id=77, producer_epoch=0, base_sequence=sequence
        )  # fmt: skip
        sequence += count
        requests.append(request((PLAIN, 1, batch)))
    before = end_offset(client, PLAIN, 1)
    for sent in requests:
        client.send(sent, VERSION)
    answers = [client.receive(sent, VERSION).responses[0].partition_responses[0] for sent in requests]
    assert [answer.error_code for answer in answers] == [0] * 12
    assert end_offset(client, PLAIN, 1) == before + sequence
    for sent in requests[-3:]:
        assert client.ask(sent, VERSION).responses[0].partition_responses[0].error_code == 0
    assert end_offset(client, PLAIN, 1) == before + sequence, "they were known again"


def test_a_request_to_very_many_partitions_is_not_overtaken(broker: OttlaProcess, client: RawConnection) -> None:
    """It is appended in slices; what is pipelined behind it comes behind it in the log."""
    Teller(broker.bootstrap).create("many", MANY + 50)
    value = Record(0, now_ms(), None, b"v" * 100)
    last = MANY + 49
    for _ in range(5):
        many = request(*(("many", number, encode_batch([value])) for number in range(last + 1)))
        behind = request(("many", last, encode_batch([value])))
        client.send_together((many, behind), VERSION)
        (topic,) = client.receive(many, VERSION).responses[-1:]
        first = topic.partition_responses[-1].base_offset
        assert client.receive(behind, VERSION).responses[0].partition_responses[0].base_offset == first + 1


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("topic", [PLAIN, COMPACTED, ZSTD])
def test_a_bomb_delays_nobody(broker: OttlaProcess, client: RawConnection, topic: str, codec: Compression) -> None:
    """200 MB of records in a batch of less than a megabyte; another client asks all the time meanwhile."""
    rows = [Record(0, now_ms(), b"k", bytes(1 << 20))] * 200
    payload = bytearray()
    for number, row in enumerate(rows):
        append_record(payload, number, 0, row)
    bomb = raw_batch(compress(codec, payload), len(rows), codec)
    assert len(bomb) < 1 << 20
    # a machine that is busy with other tests makes one of them wait now and then
    assert any(_longest_wait_s(broker, client, topic, bomb) < 0.5 for _ in range(8))


def _longest_wait_s(broker: OttlaProcess, client: RawConnection, topic: str, bomb: bytearray) -> float:
    """Of another client, while the broker takes the batch."""
    stop = threading.Event()
    looked = threading.Event()
    waits: list[float] = []

    def look() -> None:
        with RawConnection(broker.bootstrap) as other:
            while not stop.is_set():
                asked = time.perf_counter()
                other.ask(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
                waits.append(time.perf_counter() - asked)
                looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    looked.wait()
    try:
        answer = produce(client, topic, bomb)
    finally:
        stop.set()
        thread.join()
    assert not answer.error_code
    return max(waits)


def test_records_that_wait_for_those_of_another_partition_stay_what_they_are(
    broker: OttlaProcess, client: RawConnection
) -> None:
    """A thread compresses the first partition's anew; meanwhile other requests come into the buffer they all share."""
    large = [Record(number, now_ms(), None, os.urandom(1000)) for number in range(60)]
    refused: set[ErrorCode] = set()

    def send(name: str) -> None:
        with RawConnection(broker.bootstrap) as connection:
            for number in range(40):
                value = Record(0, now_ms(), None, f"{name}-{number}".encode())
                asked = request((ZSTD, 1, encode_batch(large)), (WAITING, 3, encode_batch([value])))
                refused.update(errors_in(connection.ask(asked, VERSION)))

    senders = [threading.Thread(target=send, args=(name,)) for name in "abc"]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert not refused
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(WAITING, 3, 0)])
    values = [message.value() for message in consumer.consume(end_offset(client, WAITING, 3), timeout=20)]
    consumer.close()
    assert sorted(value.decode() for value in values if value) == sorted(
        f"{name}-{number}" for name in "abc" for number in range(40)
    )
