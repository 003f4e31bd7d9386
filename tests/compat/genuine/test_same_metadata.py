"""The metadata log of three genuine nodes, through failures and moves, adds up to what genuine Kafka makes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool
from tests.support.genuine_quorum import GenuineController, addresses, stop_all
from tests.support.metadata_state import Described, described_by, part_of_log, replayed, unordered

from ottla.admin import Admin, Partition
from ottla.clock import SystemClock
from ottla.cluster.metadata_log.partitions import MIGRATING, UNASSIGNED
from ottla.cluster.metadata_log.snapshots import snapshot_records
from ottla.cluster.metadata_log.state import ClusterState
from ottla.log.fs import RealFileSystem
from ottla.metadata.quorum.snapshots import SnapshotWriter, read_records
from ottla.protocol.metadata_records import decode_record
from ottla.quorum.replicas import OffsetAndEpoch

pytestmark = pytest.mark.soak

NODES = (1, 2, 3)
LIMIT_S = 90.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, GenuineController]]:
    """Brokers that are controllers, too, with two log directories each."""
    quorum = addresses(*NODES)
    made = {}
    for number in NODES:
        directory = tmp_path / str(number)
        properties = {
            "log.dirs": f"{directory / 'data'},{directory / 'more'}",
            "metadata.log.max.record.bytes.between.snapshots": "4000",
            "offsets.topic.replication.factor": "3",
        }
        made[number] = GenuineController(quorum[number], quorum, directory, broker=True, properties=properties)
    try:
        for node in made.values():
            node.start(wait=False)
        for node in made.values():
            node.wait_until_ready()
        yield made
    finally:
        stop_all(list(made.values()))


def _in_sync(bootstrap: str) -> set[tuple[int, ...]]:
    """The in-sync sets of all partitions."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    return {tuple(sorted(part.isrs)) for topic in topics.values() for part in topic.partitions.values()}


def test_one_state_on_all_nodes_from_log_and_snapshot(nodes: dict[int, GenuineController]) -> None:
    first = nodes[1].bootstrap
    admin = AdminClient({"bootstrap.servers": first})
    made = admin.create_topics(
        [
            NewTopic("strict", 4, 3, config={"min.insync.replicas": "3"}),
            NewTopic("moved", 1, replica_assignment=[[1]]),
            NewTopic("wide", 30, 3),
        ]
    )
    for done in made.values():
        done.result(30)
    eventually(lambda: _in_sync(first) == {(1,), NODES}, timeout_s=LIMIT_S)
    with Admin(first) as others:
        others.alter_reassignments({Partition("moved", 0): [2, 3]})
        eventually(lambda: not others.list_reassignments(), timeout_s=LIMIT_S)
    nodes[3].kill()
    eventually(lambda: _in_sync(first) == {(2,), (1, 2)}, timeout_s=LIMIT_S)
    nodes[3].start()
    eventually(lambda: _in_sync(first) == {(2, 3), NODES}, timeout_s=LIMIT_S)
    nodes[2].stop()
    nodes[2].start()
    eventually(lambda: _in_sync(first) == {(2, 3), NODES}, timeout_s=LIMIT_S)
    kafka_tool(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", first, "downgrade", "--feature", "share.version=0"),
    )
    described = described_by(first)
    for node in nodes.values():
        node.kill()

    seen = set()
    for node in nodes.values():
        directory = node.directory / "data" / "__cluster_metadata-0"
        whole = part_of_log(directory)
        state = replayed(whole)
        assert Described.of(state.image()) == described
        assert "share.version" not in state.image().features
        assert sorted(state.image().brokers) == list(NODES)
        assert not state.image().failed_replicas
        placed = [
            directory_id
            for topic in state.topics.states.values()
            for partition in topic.partitions.values()
            for directory_id in partition.directories
        ]
        assert not {MIGRATING, UNASSIGNED} & set(placed)
        newest = max(directory.glob("*.checkpoint"))
        snapshot = list(read_records(RealFileSystem(), str(newest)))
        of_log = replayed(part_of_log(directory, int(newest.name.partition("-")[0])))
        assert unordered(snapshot_records(of_log)) == unordered(snapshot)
        assert unordered(snapshot_records(replayed(snapshot))) == unordered(snapshot)
        for value in whole:
            record, _ = decode_record(value)
            if getattr(record, "eligible_leader_replicas", None):
                seen.add("eligible")
            if getattr(record, "in_controlled_shutdown", 0):
                seen.add("stopping")
        _write_anew(newest, of_log)
    assert seen == {"eligible", "stopping"}, "what this is about has happened"

    for node in nodes.values():
        node.start(wait=False)
    for node in nodes.values():
        node.wait_until_ready()
    eventually(lambda: _in_sync(first) == {(2, 3), NODES}, timeout_s=LIMIT_S)
    again = described_by(first)
    assert again._replace(topics={}) == described._replace(topics={})
    assert {name: len(parts) for name, parts in again.topics.items()} == {
        name: len(parts) for name, parts in described.topics.items()
    }


def _write_anew(snapshot: Path, state: ClusterState) -> None:
    """Put Ottla's snapshot of a state in the place of Kafka's."""
    offset, _, epoch = snapshot.stem.partition("-")
    at = OffsetAndEpoch(int(offset), int(epoch))
    now_ms = SystemClock().now_ms()
    writer = SnapshotWriter(
        RealFileSystem(), str(snapshot.parent), at, last_append_time_ms=now_ms, of_voters=[], now_ms=now_ms
    )
    for value in snapshot_records(state):
        writer.add(value)
    writer.finish()
