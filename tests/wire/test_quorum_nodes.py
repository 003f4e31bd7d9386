"""Nodes of the metadata quorum with real files and connections: elections, commits, restarts, snapshots, bad input."""

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.probe import free_port
from tests.support.quorum_server import QuorumServer, Recorder, until

from ottla.clock import Clock, SystemClock
from ottla.errors import ApiError, ErrorCode, KafkaStorageError
from ottla.metadata.quorum.metadata_log import DIRECTORY, METADATA_TOPIC_ID, MetadataLog, MetadataLogConfig
from ottla.metadata.quorum.node import NotQuorumLeader, OffsetAndEpoch
from ottla.protocol.framing import encode_response
from ottla.protocol.messages import begin_quorum_epoch as begin_messages
from ottla.protocol.messages import fetch_snapshot as fetch_snapshot_messages
from ottla.protocol.messages import vote as vote_messages
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.vote import VoteRequest
from ottla.protocol.schema import Message
from ottla.quorum.config import QuorumConfig
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.testing import Broker, FaultyFS
from ottla.testing.faulty_fs import Operation, Survival

CLUSTER_ID = "b3R0bGFfcXVvcnVtXzAwMQ"


class Quorum:
    """Static voters on free ports, each with a listener, on the test's loop."""

    def __init__(self, directory: Path, *node_ids: int, log_config: MetadataLogConfig | None = None) -> None:
        self.ports = {node_id: free_port() for node_id in node_ids}
        self.directory = directory
        self.log_config = log_config
        self.servers: dict[int, QuorumServer] = {}
        self.recorders: dict[int, Recorder] = {}
        self.directory_ids: dict[int, UUID] = {}

    @property
    def config(self) -> QuorumConfig:
        voters = VoterSet(
            Voter(ReplicaKey(node_id), (Endpoint("CONTROLLER", "127.0.0.1", port),))
            for node_id, port in self.ports.items()
        )
        return QuorumConfig(static_voters=voters, election_timeout_ms=1000, fetch_timeout_ms=4000)

    async def start(
        self,
        node_id: int,
        *,
        votes: bool = True,
        cluster_id: str = CLUSTER_ID,
        clock: Clock | None = None,
        fs: FaultyFS | None = None,
    ) -> QuorumServer:
        """`fs`: the log is in there, in `/data`."""
        server = QuorumServer(
            node_id,
            self.directory / str(node_id),
            self.config,
            cluster_id=cluster_id,
            port=self.ports.get(node_id) or free_port(),
            directory_id=self.directory_ids.setdefault(node_id, uuid4()),
            votes=votes,
            log_config=self.log_config,
            clock=clock,
            fs=fs,
            log_dir_of_fs="/data" if fs is not None else None,
        )
        self.servers[node_id] = server
        self.recorders[node_id] = Recorder()
        server.node.register(self.recorders[node_id])
        await server.start()
        return server

    async def leader(self, *among: int) -> QuorumServer:
        """The node that was announced as the leader to its own listener."""

        def found() -> QuorumServer | None:
            for node_id in among or self.servers:
                server, leaders = self.servers[node_id], self.recorders[node_id].leaders
                if leaders and leaders[-1].leader_id == node_id and server.node.leader == leaders[-1]:
                    return server
            return None

        await until(lambda: found() is not None)
        leader = found()
        assert leader is not None
        return leader

    async def close(self) -> None:
        for server in self.servers.values():
            await server.close()
        for server in self.servers.values():
            assert not [problem for problem in server.problems if str(problem) != "killed by a test"]


def all_have(quorum: Quorum, values: list[bytes], *node_ids: int) -> bool:
    return all(quorum.recorders[node_id].values == values for node_id in node_ids)


def test_three_nodes_elect_commit_and_go_on_without_their_leader(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, 2, 3)
        try:
            for node_id in (1, 2, 3):
                await quorum.start(node_id)
            leader = await quorum.leader()
            epoch = leader.node.leader.epoch
            last = await leader.node.append([b"a", b"b"], epoch=epoch)
            assert quorum.recorders[leader.node.node_id].records == [(last - 1, b"a"), (last, b"b")]
            await until(lambda: all_have(quorum, [b"a", b"b"], 1, 2, 3))
            others = [node_id for node_id in (1, 2, 3) if node_id != leader.node.node_id]
            with pytest.raises(NotQuorumLeader):
                quorum.servers[others[0]].node.append([b"x"], epoch=epoch)
            leader.kill()
            second = await quorum.leader(*others)
            assert second.node.leader.epoch > epoch
            await second.node.append([b"c"], epoch=second.node.leader.epoch)
            await until(lambda: all_have(quorum, [b"a", b"b", b"c"], *others))
            await quorum.start(leader.node.node_id)  # on what it had on its disk
            await until(lambda: all_have(quorum, [b"a", b"b", b"c"], leader.node.node_id))
            second.node.resign(second.node.leader.epoch)
            await until(lambda: second.node.leader.leader_id != second.node.node_id)
            third = await quorum.leader()
            await third.node.append([b"d"], epoch=third.node.leader.epoch)
            await until(lambda: all_have(quorum, [b"a", b"b", b"c", b"d"], 1, 2, 3))
        finally:
            await quorum.close()

    asyncio.run(run())


def test_a_leader_that_has_removed_itself_stops_once_the_others_can_do_without_it(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, 2)
        try:
            for node_id in (1, 2):
                await quorum.start(node_id)
            leader = await quorum.leader()
            own, other = leader.node.node_id, 3 - leader.node.node_id
            while leader.node.kraft_version == 0:
                await asyncio.sleep(0.1)
                with contextlib.suppress(ApiError):  # the other one has not reported what it supports
                    await leader.node.raise_kraft_version(1, epoch=leader.node.leader.epoch)
            await leader.node.append([b"a"], epoch=leader.node.leader.epoch)
            await quorum.servers.pop(other).close()
            removal = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=own, voter_directory_id=quorum.directory_ids[own]
            )
            removing = asyncio.create_task(leader.node.handle(removal, 0))
            await until(lambda: leader.node.voters.ids == {other})
            closing = asyncio.create_task(quorum.servers.pop(own).close())
            await asyncio.sleep(0.5)
            await quorum.start(other)
            await closing
            assert (await removing).error_code == ErrorCode.NONE
            alone = await quorum.leader(other)
            await alone.node.append([b"b"], epoch=alone.node.leader.epoch)
        finally:
            await quorum.close()

    asyncio.run(run())


def test_an_observer_follows_and_fetches_a_snapshot_when_it_is_far_behind(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, log_config=MetadataLogConfig(segment_bytes=500, retention_bytes=500))
        try:
            leader = await quorum.start(1)
            await quorum.leader()
            epoch = leader.node.leader.epoch
            for number in range(20):
                await leader.node.append([b"%03d" % number * 30], epoch=epoch)
            at = OffsetAndEpoch(leader.node.next_offset, epoch)
            await leader.node.write_snapshot(OffsetAndEpoch(at.offset - 3, epoch), [b"old"])
            await leader.node.write_snapshot(at, [b"all of it"])
            await until(lambda: leader.node.log.start_offset == at.offset)
            await quorum.start(9, votes=False)
            await until(lambda: all_have(quorum, [b"all of it"], 9))
            assert quorum.recorders[9].snapshots == [at]
            assert quorum.recorders[9].leaders[-1] == (1, epoch)
            await leader.node.append([b"more"], epoch=epoch)
            await until(lambda: all_have(quorum, [b"all of it", b"more"], 9))
            await quorum.servers[9].close()
            await leader.node.append([b"while it was away"], epoch=epoch)
            await quorum.start(9, votes=False)
            await until(lambda: all_have(quorum, [b"all of it", b"more", b"while it was away"], 9))
        finally:
            await quorum.close()

    asyncio.run(run())


def fetch(
    offset: int, *, max_bytes: int = 1 << 30, cluster_id: str | None = CLUSTER_ID, epoch: int = 1
) -> FetchRequest:
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=77, replica_epoch=-1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic_id=METADATA_TOPIC_ID,
                partitions=[
                    FetchPartition(
                        partition=0,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=epoch,
                        partition_max_bytes=max_bytes,
                    )
                ],
            )
        ],
    )


def fetch_snapshot(
    snapshot: OffsetAndEpoch, position: int, *, max_bytes: int = 1 << 30, cluster_id: str | None = CLUSTER_ID
) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=77,
        max_bytes=max_bytes,
        topics=[
            fetch_snapshot_messages.TopicSnapshot(
                name="__cluster_metadata",
                partitions=[
                    fetch_snapshot_messages.PartitionSnapshot(
                        partition=0,
                        current_leader_epoch=1,
                        snapshot_id=fetch_snapshot_messages.SnapshotId(
                            end_offset=snapshot.offset, epoch=snapshot.epoch
                        ),
                        position=position,
                    )
                ],
            )
        ],
    )


MOST = (1 << 63) - 1


def hostile(snapshot: OffsetAndEpoch) -> Iterator[tuple[Message, int]]:
    """Requests with every number at its extremes, and their versions."""
    numbers = (-MOST - 1, -1, 0, 1, 5, 1 << 31, MOST)
    smalls = (-(1 << 31), -1, 0, 1, (1 << 31) - 1)
    for number in numbers:
        for small in smalls:
            yield fetch(number, epoch=small), 17
            yield fetch(number, max_bytes=small), 17
            yield fetch_snapshot(OffsetAndEpoch(number, small), number), 1
            yield fetch_snapshot(snapshot, number, max_bytes=small), 1
    for cluster_id in (None, "", "another"):
        yield fetch(0, cluster_id=cluster_id), 17
        yield fetch_snapshot(snapshot, 0, cluster_id=cluster_id), 1
    for topics in ([], [*fetch(0).topics, *fetch(0).topics], [FetchTopic(topic_id=uuid4(), partitions=[])]):
        request = fetch(0)
        request.topics = topics
        yield request, 17
    few = fetch_snapshot(snapshot, 0)
    few.topics = []
    yield few, 1
    many = fetch_snapshot(snapshot, 0)
    many.topics = many.topics * 10_000
    yield many, 1
    for small in smalls:
        yield vote(small), 2
        yield (
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER_ID,
                voter_id=small,
                topics=[
                    begin_messages.TopicData(
                        topic_name="__cluster_metadata",
                        partitions=[begin_messages.PartitionData(partition_index=0, leader_id=small, leader_epoch=-1)],
                    )
                ],
                leader_endpoints=[],
            ),
            1,
        )
        yield DescribeQuorumRequest(topics=[]), 2
        yield RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=small, voter_directory_id=uuid4()), 0
        yield (
            AddRaftVoterRequest(
                cluster_id=CLUSTER_ID, timeout_ms=small, voter_id=small, voter_directory_id=uuid4(), listeners=[]
            ),
            1,
        )


def vote(number: int) -> VoteRequest:
    return VoteRequest(
        cluster_id=CLUSTER_ID,
        voter_id=1,
        topics=[
            vote_messages.TopicData(
                topic_name="__cluster_metadata",
                partitions=[
                    vote_messages.PartitionData(
                        partition_index=0,
                        replica_epoch=min(number, 1),
                        replica_id=number,
                        last_offset_epoch=number,
                        last_offset=number,
                        pre_vote=True,
                    )
                ],
            )
        ],
    )


def test_hostile_requests_are_answered_within_limits_and_change_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, log_config=MetadataLogConfig(segment_bytes=1 << 20))
        try:
            node = (await quorum.start(1)).node
            await quorum.leader()
            for _ in range(12):
                await node.append([b"x" * (1 << 20)], epoch=1)
            at = OffsetAndEpoch(node.next_offset, 1)
            await node.write_snapshot(at, [b"y" * (1 << 20)] * 12)
            largest = 0
            for request, version in hostile(at):
                answer = await asyncio.wait_for(node.handle(request, version), 30)
                if getattr(request, "cluster_id", None) == "another":
                    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
                pieces = encode_response(answer, version, 1)
                largest = max(largest, sum(len(piece) for piece in pieces))
            assert 8 << 20 <= largest <= (8 << 20) + 2048
            assert not quorum.servers[1].problems
            last = await node.append([b"after all that"], epoch=1)
            assert quorum.recorders[1].records[-1] == (last, b"after all that")
        finally:
            await quorum.close()

    asyncio.run(run())


def disk(seed: int) -> FaultyFS:
    """A disk with the directory `/data`."""
    fs = FaultyFS(seed=seed)
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def test_others_go_on_when_the_disk_under_the_leaders_log_is_full(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, 2, 3)
        disks = {node_id: disk(node_id) for node_id in (1, 2, 3)}
        for node_id in disks:
            await quorum.start(node_id, fs=disks[node_id])
        leader = await quorum.leader()
        full = leader.node.node_id
        await leader.node.append([b"kept"], epoch=leader.node.leader.epoch)
        disks[full].fail(Operation.WRITE, "*.log", error=errno.ENOSPC, times=None)
        with pytest.raises(NotQuorumLeader):
            await leader.node.append([b"refused"], epoch=leader.node.leader.epoch)
        assert "No space left" in str(leader.problems.pop())
        await quorum.servers.pop(full).close()  # as its process ends
        successor = await quorum.leader()
        await successor.node.append([b"and on"], epoch=successor.node.leader.epoch)
        left = [quorum.recorders[node_id] for node_id in quorum.servers]
        await until(lambda: all(recorder.values == [b"kept", b"and on"] for recorder in left))
        await quorum.close()

    asyncio.run(run())


def test_a_full_disk_ends_the_node_and_acknowledges_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        fs = disk(5)
        server = QuorumServer(
            1,
            tmp_path,
            Quorum(tmp_path, 1).config,
            cluster_id=CLUSTER_ID,
            port=free_port(),
            fs=fs,
            log_dir_of_fs="/data",
        )
        recorder = Recorder()
        server.node.register(recorder)
        await server.start()
        await until(lambda: [leader.leader_id for leader in recorder.leaders[-1:]] == [1])
        await server.node.append([b"kept"], epoch=1)
        fs.capacity_bytes = fs.used_bytes() + 100
        await server.node.append([b"into the room that is reserved"], epoch=1)
        fs.fail(Operation.WRITE, "*.log", error=errno.ENOSPC, times=None)
        with pytest.raises(NotQuorumLeader):
            await server.node.append([b"x" * 1000], epoch=1)
        assert [type(problem) for problem in server.problems] == [KafkaStorageError]
        assert "No space left" in str(server.problems[0])
        with pytest.raises(KafkaStorageError):
            await server.node.handle(fetch(0), 17)
        await server.close()
        fs.capacity_bytes = None
        fs.crash(Survival.NOTHING)
        log = MetadataLog.open("/data", MetadataLogConfig(), fs=fs, clock=SystemClock())
        assert log.end == (3, 1)
        assert recorder.values == [b"kept", b"into the room that is reserved"]

    asyncio.run(run())


def fill(fs: FaultyFS) -> None:
    fs.capacity_bytes = fs.used_bytes()


def test_voters_with_full_disks_elect_commit_and_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, 2, 3)
        disks = {node_id: disk(node_id) for node_id in (1, 2, 3)}
        try:
            for node_id in disks:
                await quorum.start(node_id, fs=disks[node_id])
            leader = await quorum.leader()
            await leader.node.append([b"0"], epoch=leader.node.leader.epoch)
            for fs in disks.values():
                fill(fs)
            for number in range(1, 4):
                stopped = (await quorum.leader()).node.node_id
                await quorum.servers.pop(stopped).close()
                leader = await quorum.leader()
                await leader.node.append([b"%d" % number], epoch=leader.node.leader.epoch)
                at = OffsetAndEpoch(leader.node.next_offset, leader.node.leader.epoch)
                with pytest.raises(KafkaStorageError, match="No space left"):
                    await leader.node.write_snapshot(at, [b"y" * 100_000])
                await quorum.start(stopped, fs=disks[stopped])
            await until(lambda: all_have(quorum, [b"0", b"1", b"2", b"3"], 1, 2, 3))
            assert not any(
                name.endswith(".part") for fs in disks.values() for name, _, _ in fs.names(f"/data/{DIRECTORY}")
            )
        finally:
            await quorum.close()

    asyncio.run(run())


def test_a_snapshot_that_finds_no_room_is_fetched_when_there_is_some(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, log_config=MetadataLogConfig(segment_bytes=500, retention_bytes=500))
        fs = disk(9)
        try:
            node = (await quorum.start(1)).node
            await quorum.leader()
            for number in range(20):
                await node.append([b"%03d" % number * 30], epoch=1)
            everything = b"all of it" + bytes(100_000)
            for before_end in (3, 0):  # the second takes the place of the first, and of the log
                await node.write_snapshot(OffsetAndEpoch(node.next_offset - before_end, 1), [everything])
            await until(lambda: node.log.start_offset == node.next_offset)
            dropped = fs.fail(Operation.REMOVE, "*.part", skip=1, times=0)  # it only counts
            fs.fail(Operation.WRITE, "*.part", error=errno.ENOSPC, times=None)
            behind = await quorum.start(9, votes=False, fs=fs)
            await until(lambda: not dropped.skip)
            assert quorum.recorders[9].values == behind.problems == []
            fs.heal()
            await until(lambda: all_have(quorum, [everything], 9))
        finally:
            await quorum.close()

    asyncio.run(run())


def test_a_truncated_snapshot_is_named_at_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1)
        node = (await quorum.start(1)).node
        await quorum.leader()
        await node.append([b"a"], epoch=1)
        await node.write_snapshot(OffsetAndEpoch(2, 1), [b"a"])
        await quorum.close()
        (file,) = (tmp_path / "1/__cluster_metadata-0").glob("*.checkpoint")
        file.write_bytes(file.read_bytes()[:-20])
        again = QuorumServer(1, tmp_path / "1", quorum.config, cluster_id=CLUSTER_ID, port=quorum.ports[1])
        try:
            with pytest.raises(KafkaStorageError, match=rf"{file}.*Restore the file\. Or remove the directory"):
                await again.start()
        finally:
            again.kill()
            await again.close()

    asyncio.run(run())


class WrongClock(SystemClock):
    """A machine's clocks, of which an operator sets the one on the wall."""

    def __init__(self, minutes: int) -> None:
        self.minutes = minutes

    def now_ms(self) -> int:
        return super().now_ms() + self.minutes * 60_000


def test_clocks_minutes_apart_and_jumps_change_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = Quorum(tmp_path, 1, 2)
        clocks = {1: WrongClock(-10), 2: WrongClock(10)}
        try:
            for node_id, clock in clocks.items():
                await quorum.start(node_id, clock=clock)
            leader = await quorum.leader()
            epoch = leader.node.leader.epoch
            for number, minutes in enumerate((60, -60, 60 * 24 * 365, -60 * 24)):
                for node_id, clock in clocks.items():
                    clock.minutes = minutes * (-1) ** node_id
                await leader.node.append([b"%d" % number], epoch=epoch)
                values = [b"%d" % each for each in range(number + 1)]
                await until(partial(all_have, quorum, values, 1, 2))
            assert {server.node.leader.epoch for server in quorum.servers.values()} == {epoch}
        finally:
            await quorum.close()

    asyncio.run(run())


def test_wrong_bootstrap_addresses_are_named_and_the_right_one_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(broker_port: int) -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        quorum = Quorum(tmp_path, 1)
        web = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        nobody, web_port = free_port(), web.sockets[0].getsockname()[1]
        ports = (nobody, web_port, broker_port, quorum.ports[1])
        observer = QuorumServer(
            9,
            tmp_path / "9",
            QuorumConfig(bootstrap_servers=tuple(("127.0.0.1", port) for port in ports)),
            cluster_id=CLUSTER_ID,
            port=1,
            votes=False,
        )
        recorder = Recorder()
        observer.node.register(recorder)
        try:
            async with observer:
                wrong = (f"{nobody} cannot be reached", f"{web_port} does not answer as a Kafka broker")
                await until(lambda: all(text in caplog.text for text in wrong))
                await (await quorum.start(1)).node.append([b"a"], epoch=(await quorum.leader()).node.leader.epoch)
                await until(lambda: recorder.values == [b"a"])
        finally:
            web.close()
            await quorum.close()

    with Broker() as broker:
        asyncio.run(run(int(broker.bootstrap.rpartition(":")[2])))
