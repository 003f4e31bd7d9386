"""Nodes of the metadata quorum with real files and connections: elections, commits, restarts, snapshots, bad input."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.probe import free_port
from tests.support.quorum_server import QuorumServer, Recorder, until

from ottla.metadata.quorum.metadata_log import MetadataLogConfig
from ottla.metadata.quorum.node import NotQuorumLeader, OffsetAndEpoch
from ottla.quorum.config import QuorumConfig
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet

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
        return QuorumConfig(static_voters=voters, election_timeout_ms=300, fetch_timeout_ms=600)

    async def start(self, node_id: int, *, votes: bool = True, cluster_id: str = CLUSTER_ID) -> QuorumServer:
        server = QuorumServer(
            node_id,
            self.directory / str(node_id),
            self.config,
            cluster_id=cluster_id,
            port=self.ports.get(node_id) or free_port(),
            directory_id=self.directory_ids.setdefault(node_id, uuid4()),
            votes=votes,
            log_config=self.log_config,
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
