"""Clients of the controllers' listener that fetch the metadata log and take nothing: brokers follow it meanwhile."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ottla.protocol.framing import encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.quorum.requests import TOPIC_ID
from tests.support.eventually import eventually
from tests.support.quorum_in_process import QuorumInProcess

VERSION = 17
STRANGER = 777
VALUE_BYTES = 30_000
CHANGES = 60
"""So many make the log larger than what the sockets hold."""
FETCHES = 80


@pytest.fixture(scope="module")
def cluster() -> Iterator[QuorumInProcess]:
    """A broker under a controller with little memory, whose log is nearly two megabytes."""
    with QuorumInProcess(
        1, queued_max_request_bytes=str(16 << 20), socket_send_buffer_bytes="65536", default_replication_factor="1"
    ) as started:
        started.create("t", [[1]], min_insync_replicas="1")
        for change in range(CHANGES):
            pairs = (f"{number}:{change}" for number in range(VALUE_BYTES // 8))
            started.alter("t", "follower.replication.throttled.replicas", ",".join(pairs))
        yield started


def fetch() -> bytes:
    """All of the log, as a node asks for it that has nothing."""
    wanted = FetchPartition(
        partition=0,
        current_leader_epoch=1,
        fetch_offset=0,
        last_fetched_epoch=0,
        log_start_offset=-1,
        partition_max_bytes=8 << 20,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=STRANGER, replica_epoch=-1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=8 << 20,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])],
        forgotten_topics_data=[],
    )
    return b"".join(map(bytes, encode_request(request, VERSION, 1, "stranger")))  # type: ignore[arg-type]


@contextmanager
def flood(cluster: QuorumInProcess, host: str) -> Iterator[None]:
    """Connections from a host that have asked for all of the log, and take nothing of it."""
    with ExitStack() as stack:
        for _ in range(FETCHES):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.bind((host, 0))
            sock.connect(("127.0.0.1", cluster.controller_port))
            sock.sendall(fetch())
        time.sleep(1)  # they have asked
        yield


def test_a_broker_that_lacks_little_follows_the_log_while_others_take_nothing_of_it(cluster: QuorumInProcess) -> None:
    """Even where they have its address and so its turns."""
    cluster.start(3)
    cluster.stop(3)
    cluster.create("new", [[1]], min_insync_replicas="1")
    with flood(cluster, "127.0.0.1"):
        began = time.monotonic()
        cluster.start(3)
        assert "new" in cluster.image(3).topics
        assert time.monotonic() - began < 20


def test_a_broker_that_lacks_all_follows_the_log_while_others_take_nothing_of_it(cluster: QuorumInProcess) -> None:
    """Its next batches are larger than a small answer, and it has a turn among clients of another address."""
    with flood(cluster, "127.0.0.2"):
        began = time.monotonic()
        cluster.start(2)
        eventually(lambda: "t" in cluster.image(2).topics)
        assert time.monotonic() - began < 30
