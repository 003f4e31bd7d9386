"""Bad input over a real socket: the right error or a closed connection, nothing appended, nobody else disturbed.

The fuzz is seeded; a failure names its seed. Size is bounded: `FUZZED_CONNECTIONS` connections of a few requests.
"""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from typing import Final, cast

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message
from ottla.records.record import Record, encode_batch
from ottla.server.routing import ROUTES

FUZZED_CONNECTIONS: Final = 400
TOPIC: Final = "steady"


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess(properties={"socket.request.max.bytes": str(4 << 20)}) as process:
        yield process


@contextlib.contextmanager
def connection(broker: OttlaProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as sock:
        yield sock


def produced(broker: OttlaProcess, count: int) -> None:
    failures: list[object] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(TOPIC, str(number).encode(), on_delivery=note)
    assert producer.flush(20) == 0
    assert failures == []


def end_offset(broker: OttlaProcess) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watcher"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)[1])
    finally:
        consumer.close()


def valid_frames() -> list[bytes]:
    batch = bytes(
        encode_batch([Record(offset=0, timestamp_ms=0, key=None, value=b"v" * 100, headers=())], base_offset=0)
    )
    messages: list[tuple[Message, int]] = [
        (ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 4),
        (MetadataRequest(topics=None), 12),
        (
            ProduceRequest(
                acks=1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name="no-such-topic", partition_data=[PartitionProduceData(index=0, records=batch)]
                    )
                ],
            ),
            9,
        ),
        (
            FetchRequest(
                max_wait_ms=10,
                min_bytes=1,
                topics=[
                    FetchTopic(
                        topic=TOPIC,
                        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                    )
                ],
                forgotten_topics_data=[],
                rack_id="",
            ),
            12,
        ),
    ]
    return [
        b"".join(cast(bytes, piece) for piece in encode_request(message, version, 1, "fuzz"))
        for message, version in messages
    ]


def answers_until_closed(sock: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while chunk := sock.recv(65_536):
            data += chunk
    return data


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff" + b"x" * 1000,
        struct.pack(">ihhi", 8, 9999, 0, 1),
        struct.pack(">ihhih", 10, 1, 99, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhih", 10, 3, 12, 1, 30_000),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    ],
    ids=[
        "http",
        "tls",
        "empty frame",
        "negative length",
        "oversize",
        "unknown api",
        "unknown version",
        "version too old",
        "client id past the end",
        "array of two billion",
    ],
)
def test_garbage_closes_the_connection(broker: OttlaProcess, garbage: bytes) -> None:
    with connection(broker) as sock:
        sock.sendall(garbage)
        assert answers_until_closed(sock) == b""


def test_an_unknown_version_of_api_versions_gets_the_list_in_version_0(broker: OttlaProcess) -> None:
    with connection(broker) as sock:
        sock.sendall(struct.pack(">ihhihb", 11, ApiKey.API_VERSIONS, 99, 77, -1, 0))
        size, correlation_id, error, count = struct.unpack(">iihi", sock.recv(14, socket.MSG_WAITALL))
        assert (correlation_id, error, count) == (77, 35, len(ROUTES) - 2)  # telemetry has no subscription
        assert size == 10 + 6 * count


def test_half_a_frame_and_then_silence_holds_nothing_up(broker: OttlaProcess) -> None:
    produced(broker, 1)
    with connection(broker) as sock:
        sock.sendall(valid_frames()[1][:9])
        produced(broker, 10)


def test_two_hundred_lying_lengths_take_no_memory(broker: OttlaProcess) -> None:
    before = broker.rss_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connection(broker))
            sock.sendall(struct.pack(">i", (4 << 20) - 1) + b"x" * 100)
        produced(broker, 10)
        grown = broker.rss_bytes() - before
    assert grown < 60 << 20  # announced were 800 MB; the first 128 KB of each is granted


def test_fuzzed_requests_disturb_nobody(broker: OttlaProcess) -> None:
    produced(broker, 100)
    expected_end = end_offset(broker)
    frames = valid_frames()
    rss_before = broker.rss_bytes()
    for seed in range(FUZZED_CONNECTIONS):
        rng = random.Random(seed)
        with connection(broker) as sock, contextlib.suppress(OSError):
            for _ in range(rng.randint(1, 4)):
                frame = bytearray(rng.choice(frames))
                for _ in range(rng.randint(0, 8)):
                    frame[rng.randrange(4, len(frame))] = rng.randrange(256)
                if rng.random() < 0.3:
                    frame = frame[: rng.randrange(1, len(frame))]
                if rng.random() < 0.2:
                    frame[0:4] = struct.pack(">i", rng.choice([0, -5, 3, 70_000, 2**31 - 1]))
                sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(2)
            answers_until_closed(sock)
    assert psutil.pid_exists(broker.pid)
    assert end_offset(broker) == expected_end
    produced(broker, 1)
    assert broker.rss_bytes() - rss_before < 64 << 20


def test_a_refusal_of_a_long_name_is_an_answer(broker: OttlaProcess) -> None:
    """Names may be as long as strings, and texts about them longer."""
    topic = CreatableTopic(name="n" * 32_767, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with RawConnection(broker.bootstrap) as client:
        (answer,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.error_message.endswith("nnn ...")
