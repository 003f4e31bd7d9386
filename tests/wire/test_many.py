"""A thousand idle connections and two thousand partitions are ordinary: little memory, soon ready, quick answers."""

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.stories import Teller, batch, fetch, list_offsets

from ottla.protocol.framing import encode_request
from ottla.protocol.messages.metadata import MetadataRequest

CONNECTIONS: Final = 1000
PARTITIONS: Final = 2000
TOPIC: Final = "wide"
MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess() as process:
        yield process


@contextlib.contextmanager
def idle_connections(broker: OttlaProcess, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have asked something once, as clients do, and now wait."""
    request = MetadataRequest(topics=[])
    frame = b"".join(bytes(piece) for piece in encode_request(request, 12, 7, "idle"))  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=20))
            sock.sendall(frame)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            assert len(sock.recv(size, socket.MSG_WAITALL)) == size
            opened.append(sock)
        yield opened


def test_a_thousand_idle_connections(broker: OttlaProcess) -> None:
    teller = Teller(broker.bootstrap)
    teller.create("steady")
    before = broker.rss_bytes()
    with idle_connections(broker, CONNECTIONS) as opened:
        per_connection = (broker.rss_bytes() - before) / CONNECTIONS
        print(f"idle connections: {per_connection / 1024:.1f} KiB each")
        assert per_connection < 8 * 1024
        busy_before = broker.cpu_seconds()
        time.sleep(1)
        assert broker.cpu_seconds() - busy_before < 0.5
        teller.fill("steady", batch(b"v"))
        for sock in opened[::100]:  # they are served as on the first day
            sock.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x09\xff\xff")
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            assert sock.recv(size, socket.MSG_WAITALL)[:4] == b"\x00\x00\x00\x09"


def test_two_thousand_partitions(broker: OttlaProcess) -> None:
    teller = Teller(broker.bootstrap)
    before = broker.rss_bytes()
    began = time.monotonic()
    teller.create(TOPIC, PARTITIONS)
    created_s = time.monotonic() - began
    for partition in (0, 999, 1999):
        teller.fill(TOPIC, batch(b"v"), partition=partition)
    per_partition = (broker.rss_bytes() - before) / PARTITIONS
    broker.restart()
    answered_s = time.perf_counter() - broker.spawned_at
    ready_cpu_s = broker.cpu_seconds()
    after_restart = broker.rss_bytes()
    print(
        f"partitions: created in {created_s:.2f} s, {per_partition / 1024:.1f} KiB each; "
        f"after a restart ready in {answered_s:.2f} s ({ready_cpu_s:.2f} s of CPU) at {after_restart / MIB:.0f} MiB"
    )
    assert per_partition < 16 * 1024
    assert after_restart < 90 * MIB
    assert ready_cpu_s < 3  # CPU, not wall clock: other tests run beside this one
    answer = ask(broker.bootstrap, list_offsets([(TOPIC, number, -1) for number in range(PARTITIONS)]), 7)
    ends = {partition.partition_index: partition.offset for partition in answer.topics[0].partitions}
    assert {number for number, end in ends.items() if end} == {0, 999, 1999}


def test_a_fetch_of_all_partitions_waits_without_work(broker: OttlaProcess) -> None:
    Teller(broker.bootstrap).create("all-empty", PARTITIONS)
    everything = [("all-empty", number, 0) for number in range(PARTITIONS)]
    busy_before = broker.cpu_seconds()
    began = time.monotonic()
    answer = ask(broker.bootstrap, fetch(everything, max_wait_ms=1000), 12)
    assert time.monotonic() - began >= 0.9
    assert not any(partition.records for topic in answer.responses for partition in topic.partitions)
    assert broker.cpu_seconds() - busy_before < 0.5
