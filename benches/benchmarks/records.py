"""A broker's CPU for records of each kind of topic, and what requests that are small or empty may cost."""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.raw_client import RawConnection

from benches.contestants import Contestant
from benches.generators import wait_for_leaders
from benches.model import Bench, Benchmark, Figure, Goal
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, Compression, seal
from ottla.records.record import Record, append_record

_SIZE: Final = 100
_KINDS: Final = {
    "plain": ({}, "none"),
    "lz4": ({}, "lz4"),
    "compacted": ({"cleanup.policy": "compact"}, "none"),
    "bounded": ({"message.timestamp.before.max.ms": "86400000"}, "none"),
    "to_zstd": ({"compression.type": "zstd"}, "none"),
    "lz4_to_zstd": ({"compression.type": "zstd"}, "lz4"),
}
"""Settings of the topic and compression of the producer."""
_BOMB_TOPIC: Final = "compacted"
_BOMB_RECORDS: Final = 900_000
_FRAME_BYTES: Final = 99 << 20


def _create(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)], operation_timeout=60)[topic].result(90)
    wait_for_leaders(bootstrap, topic, 1)


def _produce(bootstrap: str, topic: str, compression: str, records: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "compression.type": compression,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    rows: list[dict[str, Any]] = [
        {"key": b"%010d" % number, "value": b"%050d" % (number * 7919) + bytes(_SIZE - 60)} for number in range(2000)
    ]
    left = records
    while left:
        queued = producer.produce_batch(topic, rows[:left])
        left -= queued
        producer.poll(0 if queued else 0.01)
    if waiting := producer.flush(120):
        raise TimeoutError(f"{waiting} records were not acknowledged")


def _measure_cpu(contestant: Contestant, bench: Bench) -> dict[str, float]:
    records = bench.scaled(2_000_000, 500_000)
    figures = {}
    with bench.broker(contestant) as broker:
        for kind, (settings, compression) in _KINDS.items():
            bench.say(f"{contestant.title}: {records:,} records, {kind}")
            _create(broker.bootstrap, kind, settings)
            _produce(broker.bootstrap, kind, compression, records // 10)
            before = broker.cpu_seconds()
            _produce(broker.bootstrap, kind, compression, records)
            figures[f"{kind}_s"] = (broker.cpu_seconds() - before) / (records / 1e6)
    return figures


@contextmanager
def _others(bootstrap: str) -> Iterator[list[float]]:
    """How long each request of another client takes, ms, while this is open."""
    waits: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        with RawConnection(bootstrap) as connection:
            while not stop.wait(0.005):
                asked = time.perf_counter()
                connection.ask(request, 3)
                waits.append((time.perf_counter() - asked) * 1000)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        stop.set()
        thread.join()


def _bomb() -> bytearray:
    """A batch of many small records, which gzip makes little of."""
    records = bytearray()
    row = Record(0, 0, b"k", None)
    for number in range(_BOMB_RECORDS):
        append_record(records, number, 0, row)
    packer = zlib.compressobj(9, wbits=31)
    payload = packer.compress(records) + packer.flush()
    now_ms = time.time_ns() // 1_000_000
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch, 0, 0, HEADER_SIZE - LENGTH_OVERHEAD + len(payload), -1, 2, 0, Compression.GZIP, _BOMB_RECORDS - 1,
        now_ms, now_ms, -1, -1, -1, _BOMB_RECORDS,
    )  # fmt: skip
    batch += payload
    seal(batch)
    return batch


def _measure_stalls(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures = {}
    with bench.broker(contestant) as broker:
        _create(broker.bootstrap, _BOMB_TOPIC, {"cleanup.policy": "compact", "max.message.bytes": "8388608"})
        data = PartitionProduceData(index=0, records=_bomb())
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=_BOMB_TOPIC, partition_data=[data])]
        )
        names = _names()
        for name in ("batch", "metadata"):
            bench.say(f"{contestant.title}: {name}")
            with _others(broker.bootstrap) as waits:
                while len(waits) < 20:
                    time.sleep(0.01)
                waits.clear()
                if name == "batch":
                    with RawConnection(broker.bootstrap) as connection:
                        connection.ask(request, 9)
                else:
                    _send(broker.port, names)
                while not waits:
                    time.sleep(0.01)
            figures[f"{name}_ms"] = max(waits)
        figures["rss_mb"] = broker.rss_bytes() / 1e6
    return figures


def _names() -> bytes:
    """A Metadata request of the size that `socket.request.max.bytes` allows, full of empty names."""
    count = _FRAME_BYTES // 2
    head = struct.pack(">hhihi", 3, 8, 1, 0, count)
    return struct.pack(">i", len(head) + 2 * count + 3) + head + bytes(2 * count + 3)


def _send(port: int, request: bytes) -> None:
    """Send it, and wait until it is answered or the connection closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock, suppress(ConnectionError):
        sock.sendall(request)
        sock.recv(1)


RECORD_CHECKS: Final = Benchmark(
    "records-cpu",
    "A broker's CPU seconds for a million records of 100 bytes, by topic",
    (
        Figure("plain_s", "plain", "s", "lower", {"ottla": Goal("value", 0.25)}),
        Figure("lz4_s", "lz4, kept", "s", "lower"),
        Figure("compacted_s", "compacted", "s", "lower", {"ottla": Goal("value", 0.5)}),
        Figure("bounded_s", "no old records", "s", "lower", {"ottla": Goal("value", 0.5)}),
        Figure("to_zstd_s", "made zstd", "s", "lower"),
        Figure("lz4_to_zstd_s", "lz4 made zstd", "s", "lower"),
    ),
    _measure_cpu,
    disk_gb=3,
    contestants=frozenset({"ottla", "kafka"}),
)
DEAR_REQUESTS: Final = Benchmark(
    "records-stalls",
    "The longest wait of another client during one dear request",
    (
        Figure("batch_ms", f"a batch of {_BOMB_RECORDS:,} records", "ms", "lower", {"ottla": Goal("value", 50)}),
        Figure("metadata_ms", "104 MB of empty names", "ms", "lower", {"ottla": Goal("value", 50)}),
        Figure("rss_mb", "memory afterwards", "MB", "lower"),
    ),
    _measure_stalls,
    disk_gb=1,
    contestants=frozenset({"ottla", "kafka"}),
)
