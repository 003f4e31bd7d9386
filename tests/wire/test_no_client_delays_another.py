"""No request, whatever its size or content, delays another client by more than 50 ms, nor takes the broker's memory.

Each attack is run beside a bystander (`tests.support.bystander`), and up to five times: what delays others does so
every time, what the machine does it does once, as a full collection of garbage does. To add an attack, write a function
of a broker and list it. With `-s` every run prints its figures.
"""

import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from tests.support.broker_process import BrokerProcess
from tests.support.bystander import Attack, Suffered, bystander
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection, ask
from tests.support.stories import Teller, batch

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MANY_ACKNOWLEDGEMENTS: Final = 10
"""Acknowledgements of one client, one after the other. If new files delay rounds it gets one, else hundreds, however
slow the disk is."""
NEW_PARTITIONS: Final = 1000
TRIES: Final = 5
MIB: Final = 1 << 20
TOPIC: Final = "large"
LARGE_PARTITIONS: Final = 16
BYTES_PER_PARTITION: Final = 40 * MIB
MANY: Final = "many"
MANY_PARTITIONS: Final = 200
WIDE: Final = "wide"
WIDE_PARTITIONS: Final = 2000
WIDE_CONNECTIONS: Final = 250


def fill(broker: BrokerProcess, topic: str, partitions: int, bytes_each: int) -> None:
    """Records of a megabyte in every partition, unknown to the broker's process and out of the page cache."""
    Teller(broker.bootstrap).create(topic, partitions)
    records = bytes(batch(b"v" * (MIB - 1000)))
    with RawConnection(broker.bootstrap) as connection:
        for _ in range(bytes_each // MIB):
            for number in range(partitions):
                request = produce(topic, {number: records})
                (answer,) = connection.ask(request, 9).responses
                assert answer.partition_responses[0].error_code == ErrorCode.NONE


def _drop_cache(directory: Path) -> None:
    for path in directory.glob("*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def produce(topic: str, records: dict[int, bytes], acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=number, records=data) for number, data in records.items()]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )


def fetch_everything(topic: str, partitions: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=2**31 - 1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=BYTES_PER_PARTITION)
                    for number in range(partitions)
                ],
            )
        ],
    )


def half_sent_frames(broker: BrokerProcess) -> None:
    """Twenty clients announce 100 MB each, send fifteen, stop, and leave one after the other."""
    with ExitStack() as stack:
        announced = (100 * MIB).to_bytes(4, "big") + bytes(15 * MIB)
        socks: list[tuple[socket.socket, memoryview]] = []
        for _ in range(20):
            stack.callback(time.sleep, 0.02)
            sock = stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=20))
            sock.setblocking(False)
            socks.append((sock, memoryview(announced)))
        deadline = time.monotonic() + 3
        while socks and time.monotonic() < deadline:
            for at, (sock, rest) in enumerate(socks):
                with suppress(BlockingIOError):
                    socks[at] = sock, rest[sock.send(rest[:65_536]) :]
            socks = [(sock, rest) for sock, rest in socks if len(rest)]
            time.sleep(0.01)
        time.sleep(0.5)


def many_connections(broker: BrokerProcess) -> None:
    """Nine hundred clients come at once, say nothing and leave."""
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(900):
                stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=20))


def cold_fetches_unread(broker: BrokerProcess) -> None:
    """One client asks for everything sixteen times, and reads nothing."""
    _drop_cache(broker.log_dir)
    with RawConnection(broker.bootstrap) as connection:
        for _ in range(16):
            connection.send(fetch_everything(TOPIC, LARGE_PARTITIONS), 12)
        time.sleep(3)


def cold_fetches_read_slowly(broker: BrokerProcess) -> None:
    """As before, by ten clients that take a little now and then, while the kernel drops what they have not taken."""
    _drop_cache(broker.log_dir)
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(10)]
        for connection in connections:
            for _ in range(4):
                connection.send(fetch_everything(TOPIC, LARGE_PARTITIONS), 12)
        for _ in range(20):
            _drop_cache(broker.log_dir)
            for connection in connections:
                connection.take(MIB)


def small_answers_unread(broker: BrokerProcess) -> None:
    """Ten clients ask for a little of everything two hundred times each, and read nothing."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=2**31 - 1,
        topics=[
            FetchTopic(
                topic=MANY,
                partitions=[
                    FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=60_000)
                    for number in range(MANY_PARTITIONS)
                ],
            )
        ],
    )
    with ExitStack() as stack:
        for _ in range(10):
            connection = stack.enter_context(RawConnection(broker.bootstrap))
            for _ in range(200):
                connection.send(request, 12)
        time.sleep(3)


def fetches_parked(broker: BrokerProcess) -> None:
    """Three clients wait 256 times each for more than will ever be in any partition, while another one writes."""
    waiting = fetch_everything(MANY, MANY_PARTITIONS)
    waiting.max_wait_ms = waiting.min_bytes = 2**31 - 1
    for topic in waiting.topics:
        for partition in topic.partitions:
            partition.fetch_offset = 1
    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(RawConnection(broker.bootstrap))
            for _ in range(256):
                connection.send(waiting, 12)
        time.sleep(1)
        for _ in range(20):
            ask(broker.bootstrap, produce(MANY, {0: bytes(batch(b"v"))}), 9)


def fetches_parked_on_many_connections(broker: BrokerProcess) -> None:
    """Each of many clients waits for records of two thousand partitions, and none will ever come."""
    waiting = fetch_everything(WIDE, WIDE_PARTITIONS)
    waiting.max_wait_ms = waiting.min_bytes = 2**31 - 1
    with ExitStack() as stack:
        for number in range(WIDE_CONNECTIONS):
            stack.enter_context(RawConnection(broker.bootstrap)).send(waiting, 12)
            if number % 10 == 0:
                ask(broker.bootstrap, fetch_everything(WIDE, WIDE_PARTITIONS), 12)  # so that they do wait by now


def fetch_session_that_grows(broker: BrokerProcess) -> None:
    """A client adds partitions that do not exist to its session with every fetch, then asks for nothing more."""
    each = 12_000
    with RawConnection(broker.bootstrap) as connection:
        session_id, epoch = 0, 0
        for begin in (*range(0, 20 * each, each), None):
            numbers = () if begin is None else range(begin, begin + each)
            partitions = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in numbers]
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic(topic="unknown", partitions=partitions)] if partitions else [],
            )
            answer = connection.ask(request, 12)
            epoch = 0 if answer.error_code else epoch + 1
            session_id = 0 if answer.error_code else answer.session_id


def prepare_large(broker: BrokerProcess) -> None:
    fill(broker, TOPIC, LARGE_PARTITIONS, BYTES_PER_PARTITION)
    broker.restart()


def prepare_wide(broker: BrokerProcess) -> None:
    Teller(broker.bootstrap).create(WIDE, WIDE_PARTITIONS)
    with ExitStack() as stack:  # so that the attack is not charged with what connections and first answers take
        for _ in range(WIDE_CONNECTIONS):
            stack.enter_context(RawConnection(broker.bootstrap)).ask(fetch_everything(WIDE, 1), 12)


def prepare_many(broker: BrokerProcess) -> None:
    Teller(broker.bootstrap).create(MANY, MANY_PARTITIONS)
    records = bytes(batch(b"v" * 50_000))
    for number in range(0, MANY_PARTITIONS, 50):
        parts = range(number, number + 50)
        ask(broker.bootstrap, produce(MANY, dict.fromkeys(parts, records)), 9)


ATTACKS: Final = [
    Attack("many connections", many_connections, grows_by_bytes=16 * MIB),
    Attack(
        "half-sent frames",
        half_sent_frames,
        properties={"queued.max.request.bytes": str(192 * MIB)},
        grows_by_bytes=256 * MIB,
    ),
    Attack("cold fetches unread", cold_fetches_unread, prepare_large, grows_by_bytes=32 * MIB),
    Attack("cold fetches read slowly", cold_fetches_read_slowly, prepare_large, grows_by_bytes=32 * MIB),
    Attack("small answers unread", small_answers_unread, prepare_many, grows_by_bytes=32 * MIB),
    Attack("fetches parked", fetches_parked, prepare_many, grows_by_bytes=16 * MIB),
    Attack(
        "fetches parked on many connections", fetches_parked_on_many_connections, prepare_wide, grows_by_bytes=112 * MIB
    ),
    Attack("fetch session that grows", fetch_session_that_grows, grows_by_bytes=64 * MIB),
]


@pytest.fixture(params=ATTACKS, ids=str, scope="module")
def attack(request: pytest.FixtureRequest) -> Attack:
    return request.param


@pytest.mark.timeout(300)
def test_no_client_delays_another(attack: Attack) -> None:
    with OttlaProcess(properties=attack.properties) as broker:
        attack.prepare(broker)
        suffered: list[Suffered] = []
        for _ in range(TRIES):
            with bystander(broker) as seen:
                attack.run(broker)
            suffered.append(seen.suffered)
            print(f"{attack.name}: {seen.suffered}")
            if seen.suffered.worst_s <= attack.most_s:
                break
        assert suffered[0].grown_bytes <= attack.grows_by_bytes
        assert min(seen.worst_s for seen in suffered) <= attack.most_s


@pytest.mark.timeout(120)
def test_the_first_files_of_new_partitions_delay_no_acknowledgement() -> None:
    """A thousand partitions are written to for the first time. Counted is how many acknowledgements another client gets
    meanwhile, one by one, so that a disk that is slow for both does not matter."""
    with OttlaProcess() as broker:
        teller = Teller(broker.bootstrap)
        teller.create("steady")
        teller.create("new", NEW_PARTITIONS)
        ask(broker.bootstrap, produce("steady", {0: bytes(batch(b"v" * 100))}), 9)  # has its own first files already
        taken_s = acknowledged_meanwhile(broker, "new")
        print(
            f"first files of {NEW_PARTITIONS} partitions: {len(taken_s)} acknowledgements, {max(taken_s):.3f} s at most"
        )
        assert len(taken_s) >= MANY_ACKNOWLEDGEMENTS


def acknowledged_meanwhile(broker: OttlaProcess, topic: str) -> list[float]:
    """How long acknowledgements in another topic take while every partition of `topic` is written to."""
    records = bytes(batch(b"v" * 100))
    request = produce(topic, dict.fromkeys(range(NEW_PARTITIONS), records))
    taken_s: list[float] = []
    with RawConnection(broker.bootstrap) as client, RawConnection(broker.bootstrap) as other:
        client.send(request, 9)
        waiting = threading.Thread(target=client.receive, args=(request, 9))
        waiting.start()
        while waiting.is_alive():
            began = time.perf_counter()
            other.ask(produce("steady", {0: records}), 9)
            taken_s.append(time.perf_counter() - began)
        waiting.join()
    return taken_s
