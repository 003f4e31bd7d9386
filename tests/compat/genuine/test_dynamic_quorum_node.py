"""A genuine quorum whose voters change (KIP-853): Ottla joins it, takes it over, and gives it back."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import GenuineController, addresses, quorum_status
from tests.support.quorum_server import QuorumServer, Recorder, until

from ottla.client.asynchronous import AsyncConnection
from ottla.client.sansio.handshake import handshake
from ottla.errors import ErrorCode
from ottla.metadata.quorum.metadata_log import DIRECTORY, MetadataLogConfig
from ottla.metadata.quorum.raft_node import RaftNode
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.metadata_records import NoOpRecord, encode_record
from ottla.quorum.config import QuorumConfig

pytestmark = pytest.mark.soak

KAFKA, OTTLA, OBSERVER = 1, 2, 9
NO_OP = encode_record(NoOpRecord(), 0)
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.max.retention.bytes": "400",
    "metadata.max.idle.interval.ms": "100",
}


async def remove(node: RaftNode, voter_id: int, directory_id: UUID) -> None:
    """Ask the leader, as `kafka-metadata-quorum.sh remove-controller` does; again while a change is uncommitted."""
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=voter_id, voter_directory_id=directory_id)
    while True:
        endpoint = node.leader_endpoint()
        assert endpoint is not None
        connection = AsyncConnection(*endpoint, "test", handshake=handshake)
        answer = await connection.ask(request, timeout_s=30)
        connection.close()
        if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
            break
    assert not answer.error_code, answer


def test_ottla_joins_takes_over_and_gives_back(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = addresses(KAFKA, OTTLA)
        genuine = GenuineController(
            quorum[KAFKA], quorum, tmp_path / "kafka", dynamic=True, format_options=("--standalone",),
            properties={"controller.quorum.auto.join.enable": "true"},
        )  # fmt: skip
        bootstrap = tuple(("127.0.0.1", each.port) for each in quorum.values())
        ottla = QuorumServer(
            OTTLA,
            tmp_path / "ottla",
            QuorumConfig(bootstrap_servers=bootstrap, auto_join=True),
            cluster_id=CLUSTER_ID,
            port=quorum[OTTLA].port,
        )
        recorder = Recorder()
        ottla.node.register(recorder)
        await asyncio.to_thread(genuine.start)
        try:
            await ottla.start()
            await until(lambda: ottla.node.voters.ids == {KAFKA, OTTLA})
            directory_id = ottla.node.voters.get(KAFKA).key.directory_id  # type: ignore[union-attr]  # it is there
            status = await asyncio.to_thread(quorum_status, quorum[KAFKA])
            assert f'"id": {OTTLA}, "directoryId"' in status
            before = list(recorder.records)
            await remove(ottla.node, KAFKA, directory_id)  # auto join would bring it back: stop it at once
            await asyncio.to_thread(genuine.kill)
            await until(lambda: ottla.node.leader.leader_id == OTTLA)
            assert ottla.node.voters.ids == {OTTLA}
            await ottla.node.append([NO_OP], epoch=ottla.node.leader.epoch)
            assert recorder.records[: len(before)] == before
            await asyncio.to_thread(genuine.start)
            await until(lambda: ottla.node.voters.ids == {KAFKA, OTTLA})
            await remove(ottla.node, OTTLA, ottla.node.own.key.directory_id)
            await until(lambda: ottla.node.leader.leader_id == KAFKA)
            assert ottla.node.voters.ids == {KAFKA}
        finally:
            await ottla.close()
            await asyncio.to_thread(genuine.kill)

    asyncio.run(run())


def test_an_observer_far_behind_a_genuine_leader_fetches_its_snapshot(tmp_path: Path) -> None:
    async def run() -> None:
        quorum = addresses(KAFKA)
        genuine = GenuineController(quorum[KAFKA], quorum, tmp_path / "kafka", properties=SMALL)
        await asyncio.to_thread(genuine.start)
        directory = genuine.log_dir / DIRECTORY
        observer = QuorumServer(
            OBSERVER,
            tmp_path / "ottla",
            QuorumConfig(bootstrap_servers=(("127.0.0.1", quorum[KAFKA].port),)),
            cluster_id=CLUSTER_ID,
            port=1,
            votes=False,
            log_config=MetadataLogConfig(retention_bytes=1000),
        )
        recorder = Recorder()
        observer.node.register(recorder)
        try:
            # Genuine Kafka looks once in a minute for snapshots that may go, and lets the log begin at a later one.
            await until(lambda: len(list(directory.glob("*.checkpoint.deleted"))) > 0, timeout_s=150)
            await observer.start()
            await until(lambda: len(recorder.records) > 5)
            assert recorder.snapshots
            assert recorder.snapshots[0].offset > 10
            name = f"{recorder.snapshots[0].offset:020d}-{recorder.snapshots[0].epoch:010d}.checkpoint"
            ours = (tmp_path / "ottla" / DIRECTORY / name).read_bytes()
            theirs = [path for path in directory.iterdir() if path.name.startswith(name)]
            assert ours == theirs[0].read_bytes()
        finally:
            await observer.close()
            await asyncio.to_thread(genuine.kill)

    asyncio.run(run())
