"""Three nodes of the quorum whose machines lose their power again and again: nothing acknowledged is lost."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from tests.support.quorum_server import QuorumServer, Recorder, until
from tests.wire.test_quorum_nodes import Quorum

from ottla.errors import OttlaError
from ottla.metadata.quorum.metadata_log import MetadataLogConfig
from ottla.metadata.quorum.node import OffsetAndEpoch
from ottla.testing import FaultyFS
from ottla.testing.faulty_fs import Survival

NODES = (1, 2, 3)
SMALL = MetadataLogConfig(segment_bytes=2000, retention_bytes=4000)


class Machines(Quorum):
    """A quorum whose nodes have disks that survive them."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, *NODES, log_config=SMALL)
        self.disks = {node_id: FaultyFS(seed=seed * 10 + node_id) for node_id in NODES}
        for disk in self.disks.values():
            disk.make_directory("/data")
            disk.sync_directory("/")

    async def start(self, node_id: int, **_: object) -> QuorumServer:
        server = QuorumServer(
            node_id,
            self.directory,
            self.config,
            cluster_id="b3R0bGFfcXVvcnVtXzAwMQ",
            port=self.ports[node_id],
            log_config=SMALL,
            fs=self.disks[node_id],
            log_dir_of_fs="/data",
        )
        self.servers[node_id], self.recorders[node_id] = server, Recorder()
        server.node.register(self.recorders[node_id])
        await server.start()
        return server

    async def cut_power(self, node_ids: Sequence[int], random: Random) -> None:
        """End nodes at once, amid whatever they do, with some of their unsynced writes; then start them again."""
        for node_id in node_ids:
            self.servers[node_id].kill()
            self.disks[node_id].crash(random.choice(list(Survival)))
        for node_id in node_ids:
            await self.servers[node_id].close()
            await asyncio.sleep(random.random() * 0.3)
            await self.start(node_id)


async def load(quorum: Machines, acknowledged: list[bytes], stop: asyncio.Event) -> None:
    """Append numbers at whatever node leads, and note those that were acknowledged."""
    number = 0
    while not stop.is_set():
        leading = [server.node for server in quorum.servers.values() if server.node.leader[0] == server.node.node_id]
        if not leading:
            await asyncio.sleep(0.01)
            continue
        node, value = leading[0], b"%06d" % number
        number += 1
        try:
            last = await asyncio.wait_for(node.append([value, b"-" * 50], epoch=node.leader.epoch), 10)
        except (OttlaError, TimeoutError):
            continue
        acknowledged.append(value)
        if number % 40 == 0:
            values = [record for _, record in quorum.recorders[node.node_id].records]
            at = OffsetAndEpoch(last + 1, node.leader.epoch)
            try:
                await node.write_snapshot(at, values)
            except OttlaError:
                continue


async def until_more(acknowledged: Sequence[bytes]) -> None:
    before = len(acknowledged)
    await until(lambda: len(acknowledged) > before + 5)


async def run(directory: Path, seed: int, cuts: int) -> None:
    random = Random(seed)
    quorum = Machines(directory, seed)
    acknowledged: list[bytes] = []
    stop = asyncio.Event()
    for node_id in NODES:
        await quorum.start(node_id)
    loading = asyncio.create_task(load(quorum, acknowledged, stop))
    try:
        for _ in range(cuts):
            await until_more(acknowledged)
            await quorum.cut_power(random.sample(NODES, random.choice((1, 1, 2, 3))), random)
        await until_more(acknowledged)
        stop.set()
        await loading
        await until(lambda: len({tuple(recorder.values) for recorder in quorum.recorders.values()}) == 1)
        for recorder in quorum.recorders.values():
            kept = [value for value in recorder.values if len(value) == 6]
            assert len(kept) == len(set(kept))
            assert kept == sorted(kept)
            assert not set(acknowledged) - set(kept)
    finally:
        stop.set()
        loading.cancel()
        await quorum.close()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each cut ends a node with a page of explanation."""
    caplog.set_level(logging.CRITICAL + 1, "ottla")


def test_nothing_acknowledged_is_lost_in_power_cuts(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path, seed=2, cuts=4))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 13))
def test_nothing_acknowledged_is_lost_in_many_power_cuts(tmp_path: Path, seed: int) -> None:
    asyncio.run(run(tmp_path, seed=seed, cuts=12))
