"""One full disk of three: other brokers lead, healthy leaders go on at once, and nothing is written twice."""

import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cluster.image import NO_LEADER
from ottla.testing.faulty_fs import FaultyFS, Operation
from tests.chaos.cluster_disk import SmallDisk
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.genuine_quorum import GenuineController, addresses
from tests.support.quorum_in_process import QuorumInProcess
from tests.support.quorum_nodes import OttlaNode
from tests.support.whole_topic import read_all

LAG_MS = "60000"
"""So long that no follower is dropped for its lag within a test."""


@pytest.fixture
def files() -> FaultyFS:
    return FaultyFS()


@pytest.fixture
def cluster(files: FaultyFS, request: pytest.FixtureRequest) -> Iterator[ClusterInProcess]:
    """Broker 2, not the controller, has a disk that may be full, with its metadata log on it."""
    with request.param(files={2: files}, replica_lag_time_max_ms=LAG_MS) as started:
        yield started


def with_either(*, soak: bool) -> pytest.MarkDecorator:
    """Run a test with ZooKeeper, and with a quorum: that only as a soak test, where another shows the same path."""
    quorum = pytest.param(QuorumInProcess, id="quorum", marks=[pytest.mark.soak] if soak else [])
    return pytest.mark.parametrize("cluster", [pytest.param(ClusterInProcess, id="zookeeper"), quorum], indirect=True)


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def fill(files: FaultyFS) -> None:
    files.capacity_bytes = files.used_bytes() + 100


def elect_preferred(cluster: ClusterInProcess, topic: str = "t") -> int:
    """Have the preferred replica of partition 0 lead; the error code."""
    admin = cluster.admin()  # its requests end with it
    (error,) = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(20).values()
    return KafkaError.NO_ERROR if error is None else error.code()


class BusyProducer:
    """An idempotent producer that sends to a topic from a thread, with several requests on their way at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "BusyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(40) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"%d" % number + b"." * 200, on_delivery=self._answered)
            number += 1
            self._producer.poll(0)
            time.sleep(0.001)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            self.acknowledged.append(value)
        else:
            self.failed.append(error)


@with_either(soak=False)
def test_others_lead_while_the_leaders_disk_is_full(cluster: ClusterInProcess, files: FaultyFS) -> None:
    assert cluster.controller == 1
    cluster.create("t", [[2, 3, 1]])
    cluster.create("alone", [[2]], min_insync_replicas="1")
    cluster.produce("t", values(0, 10))
    fill(files)
    cluster.produce("t", values(10, 10))
    assert cluster.partition("t")[1:2] + cluster.partition("t").isr == (3, 3, 1)
    assert elect_preferred(cluster) == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.partition("alone").leader == 2  # nobody else has it
    files.heal()
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
    eventually(lambda: elect_preferred(cluster) == KafkaError.NO_ERROR)
    eventually(lambda: cluster.partition("t").leader == 2)
    cluster.produce("t", values(20, 10))
    cluster.produce("alone", values(0, 10))
    assert sorted(read_all(cluster.bootstrap, "t", 30)) == sorted(values(0, 30))


@with_either(soak=True)
def test_a_follower_with_a_full_disk_holds_nobody_back(cluster: ClusterInProcess, files: FaultyFS) -> None:
    cluster.create("t", [[1, 2, 3]])
    cluster.produce("t", values(0, 10))
    fill(files)
    cluster.produce("t", values(10, 10))
    assert cluster.partition("t").isr == (1, 3)
    assert cluster.partition("t").leader == 1
    files.heal()
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})


@with_either(soak=True)
def test_the_last_replica_in_sync_leads_on_a_full_disk_until_another_is(
    cluster: ClusterInProcess, files: FaultyFS
) -> None:
    """Even where an unclean election is allowed: nothing is lost to a full disk."""
    cluster.create("t", [[2, 3]], min_insync_replicas="1", unclean_leader_election_enable="true")
    cluster.stop(3)
    eventually(lambda: cluster.partition("t").isr == (2,))
    cluster.produce("t", values(0, 10))
    cluster.create("filler", [[2, 1]], min_insync_replicas="1")
    fill(files)
    cluster.produce("filler", values(0, 10))
    assert cluster.partition("filler").leader == 1
    assert cluster.partition("t").leader == 2
    cluster.start(3)
    eventually(lambda: cluster.partition("t").leader == 3)
    assert read_all(cluster.bootstrap, "t", 10) == values(0, 10)


@with_either(soak=True)
def test_nothing_of_an_idempotent_producer_is_written_twice(cluster: ClusterInProcess, files: FaultyFS) -> None:
    cluster.create("t", [[2, 3, 1], [1, 2, 3], [3, 1, 2], [2, 1, 3]])
    with BusyProducer(cluster.bootstrap, "t") as producer:
        for _ in range(3):
            eventually(lambda: all(set(cluster.partition("t", number).isr) == {1, 2, 3} for number in range(4)))
            before = len(producer.acknowledged)
            eventually(lambda before=before: len(producer.acknowledged) > before + 50)
            fill(files)
            eventually(lambda: all(2 not in cluster.partition("t", number).isr for number in range(4)))
            eventually(lambda: all(cluster.partition("t", number).leader != 2 for number in range(4)))
            before = len(producer.acknowledged)
            eventually(lambda before=before: len(producer.acknowledged) > before + 50)
            files.heal()
    assert not producer.failed
    found = read_all(cluster.bootstrap, "t", len(producer.acknowledged))
    assert sorted(found) == sorted(producer.acknowledged)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(QuorumInProcess, id="quorum"),
        pytest.param(ClusterInProcess, id="zookeeper", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("passes_at_once", [False, True])
def test_a_replica_that_could_not_be_created_is_created_when_there_is_room(
    files: FaultyFS, kind: type[ClusterInProcess], caplog: pytest.LogCaptureFixture, *, passes_at_once: bool
) -> None:
    """With one replica, which has no leader meanwhile, and with three, of which two go on."""
    with kind(files={2: files}, replica_lag_time_max_ms=LAG_MS) as cluster:
        if passes_at_once:  # the directory is not found to be full, but each replica is refused twice
            for name in ("alone-0", "alone-1", "three-0"):
                files.fail(Operation.MAKE_DIRECTORY, f"*/{name}", error=errno.ENOSPC, times=2)
        else:
            files.capacity_bytes = files.used_bytes()
        cluster.create("alone", [[2], [2]], min_insync_replicas="1")
        cluster.create("three", [[2, 3, 1]])
        if not passes_at_once:
            eventually(lambda: [cluster.partition("alone", number).leader for number in range(2)] == [NO_LEADER] * 2)
            eventually(lambda: set(cluster.partition("three").isr) == {1, 3})
            cluster.produce("three", values(0, 10))
            files.heal()
        for name in ("alone-0", "alone-1", "three-0"):
            eventually(lambda name=name: f"{name} cannot be held here" in caplog.text)
        eventually(lambda: [cluster.partition("alone", number).leader for number in range(2)] == [2, 2], timeout_s=5)
        eventually(lambda: set(cluster.partition("three").isr) == {1, 2, 3}, timeout_s=5)
        for number in range(2):
            cluster.produce("alone", values(0, 10), number)
        cluster.produce("three", values(10, 10))
        elect_preferred(cluster, "three")
        eventually(lambda: cluster.partition("three").leader == 2)
        cluster.produce("three", values(20, 10))


def test_logs_that_a_start_on_a_full_disk_cannot_open_are_opened_when_there_is_room(
    files: FaultyFS, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that its full disk has ended is started again before there is room."""
    with QuorumInProcess(files={2: files}, replica_lag_time_max_ms=LAG_MS) as cluster:
        cluster.create("alone", [[2]], min_insync_replicas="1")
        cluster.create("three", [[2, 3, 1]])
        for topic in ("alone", "three"):
            cluster.produce(topic, values(0, 10))
        cluster.stop(2)
        for name in ("alone-0", "three-0"):  # what recovery writes again
            files.fail(Operation.OPEN, f"*/{name}/*.log", error=errno.ENOSPC, times=3)
        cluster.produce("three", values(10, 10))
        cluster.start(2)
        for name in ("alone-0", "three-0"):
            eventually(lambda name=name: f"{name} cannot be held here" in caplog.text)
        eventually(lambda: cluster.partition("alone").leader == 2, timeout_s=10)
        eventually(lambda: set(cluster.partition("three").isr) == {1, 2, 3}, timeout_s=10)
        cluster.produce("alone", values(10, 10))
        assert read_all(cluster.bootstrap, "alone", 20) == values(0, 20)
        elect_preferred(cluster, "three")
        eventually(lambda: cluster.partition("three").leader == 2)
        cluster.produce("three", values(20, 10))
        assert read_all(cluster.bootstrap, "three", 30) == values(0, 30)


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EACCES])
def test_a_topic_is_deleted_with_its_logs_that_could_not_be_opened(
    files: FaultyFS, problem: int, caplog: pytest.LogCaptureFixture
) -> None:
    """That is how operators make room; a topic of the same name begins anew, also in the place of a damaged log."""
    with QuorumInProcess(files={2: files}, replica_lag_time_max_ms=LAG_MS) as cluster:
        cluster.create("t", [[2, 3, 1]])
        cluster.produce("t", values(0, 10))
        cluster.stop(2)
        unreadable = files.fail(Operation.OPEN, "*/t-0/*.log", error=problem, times=None)
        cluster.start(2)
        eventually(lambda: "t-0 cannot be held here" in caplog.text)
        admin = cluster.admin()  # its requests end with it
        admin.delete_topics(["t"])["t"].result(30)
        eventually(lambda: not files.exists(f"{cluster.directory}/2/t-0"))
        unreadable.cancel()
        cluster.create("t", [[2, 3, 1]])
        cluster.produce("t", values(10, 10))
        eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        assert read_all(cluster.bootstrap, "t", 10) == values(10, 10)


def test_a_copy_that_could_not_be_opened_stays_closed_while_the_other_one_is_served(files: FaultyFS) -> None:
    """A move from one directory to another was cut short, and left the log in both."""
    with QuorumInProcess(files={2: files}, replica_lag_time_max_ms=LAG_MS) as cluster:
        cluster.create("t", [[2, 3, 1]])
        cluster.produce("t", values(0, 10))
        cluster.stop(2)
        first, second = f"{cluster.directory}/2", f"{cluster.directory}/other"
        files.make_directory(f"{second}/t-0")
        for name, _, _ in files.names(f"{first}/t-0"):
            files.write_bytes(f"{second}/t-0/{name}", files.read_bytes(f"{first}/t-0/{name}"), sync=True)
        cluster.own[2] = {"log.dirs": f"{first},{second}"}
        files.fail(Operation.OPEN, f"{first}/t-0/*.log", error=errno.ENOSPC)
        directories = cluster.start(2).replicas.directories
        eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
        assert [list(map(str, directory.logs)) for directory in directories.directories] == [[], ["t-0"]]
        admin = cluster.admin()  # its requests end with it
        admin.delete_topics(["t"])["t"].result(30)
        eventually(lambda: not files.exists(f"{first}/t-0") and not files.exists(f"{second}/t-0"))


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_genuine_controllers_move_leadership_too(files: FaultyFS) -> None:
    quorum = addresses(9)
    settings = {"min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
    with (
        GenuineController(quorum[9], quorum, broker=True, properties=settings),
        QuorumInProcess(2, files={2: files}, others=quorum, replica_lag_time_max_ms=LAG_MS) as cluster,
    ):
        cluster.create("t", [[2, 9, 1]], min_insync_replicas="1")
        cluster.create("alone", [[2]], min_insync_replicas="1")
        cluster.produce("t", values(0, 10))
        fill(files)
        cluster.produce("t", values(10, 10))
        eventually(lambda: cluster.partition("t").leader == 9 and set(cluster.partition("t").isr) == {1, 9})
        assert cluster.partition("alone").leader == 2
        files.heal()
        eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 9}, timeout_s=60)
        assert elect_preferred(cluster) == KafkaError.NO_ERROR
        eventually(lambda: cluster.partition("t").leader == 2)
        cluster.produce("t", values(20, 10))
        cluster.produce("alone", values(0, 10))
        assert sorted(read_all(cluster.bootstrap, "t", 30)) == sorted(values(0, 30))


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk that can be filled")
def test_a_node_of_both_roles_votes_on_a_full_disk(tmp_path: Path) -> None:
    """The other controllers are killed in turn, so that each election needs its vote."""
    quorum = addresses(1, 2, 3)
    nodes = {each: OttlaNode(own, quorum, broker=True, directory=tmp_path / str(each)) for each, own in quorum.items()}
    full, others = nodes[2], (nodes[1], nodes[3])
    disk = SmallDisk(full.log_dir, 64 << 20)
    disk.mount()
    try:
        for node in nodes.values():
            node.start(wait=False)
        for node in nodes.values():
            node.wait_until_ready()
        disk.fill()
        for number in range(6):
            stopped, running = others[number % 2], others[1 - number % 2]
            stopped.kill()
            admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
            topic = NewTopic(f"t{number}", 1, replica_assignment=[[quorum_id(nodes, running)]])
            eventually(partial(created, admin, topic), timeout_s=60)
            assert full.is_alive()
            stopped.start()
        disk.free()
        assert full.stop() == 0
        full.start()
        admin = AdminClient({"bootstrap.servers": full.bootstrap, "log_level": 0})
        eventually(lambda: len(admin.list_topics(timeout=10).topics) == 6, timeout_s=60)
    finally:
        for node in nodes.values():
            node.kill()
        disk.unmount()


def quorum_id(nodes: Mapping[int, OttlaNode], node: OttlaNode) -> int:
    return next(number for number, each in nodes.items() if each is node)


def created(admin: AdminClient, topic: NewTopic) -> bool:
    """Whether it is there, now at least; what holds it up is another election."""
    try:
        admin.create_topics([topic])[topic.topic].result(30)
    except KafkaException as refused:
        return refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    return True
