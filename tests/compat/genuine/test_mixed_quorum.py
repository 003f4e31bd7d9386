"""Quorums of genuine controllers and Ottla nodes: voters added while they run, leaders killed again and again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import GenuineController, addresses
from tests.support.quorum_server import QuorumServer, Recorder, until

from ottla.errors import OttlaError
from ottla.metadata.quorum.metadata_log import DIRECTORY
from ottla.protocol.metadata_records import NoOpRecord, encode_record
from ottla.quorum.config import QuorumConfig
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

NO_OP: Final = encode_record(NoOpRecord(), 0)
KILLS: Final = 20


class MixedQuorum:
    """Controllers 1 to 3, of which `ottla` are nodes of this process; number 1 is genuine and votes from the start."""

    def __init__(self, directory: Path, ottla: set[int]) -> None:
        self.directory = directory
        self.addresses = addresses(1, 2, 3)
        self.genuine = {
            number: GenuineController(
                self.addresses[number],
                self.addresses,
                directory / str(number),
                dynamic=True,
                format_options=["--standalone" if number == 1 else "--no-initial-controllers"],
            )
            for number in {1, 2, 3} - ottla
        }
        self.ottla = {number: self.ottla_node(number) for number in ottla}
        self.tool = OttlaProgram(",".join(each.endpoint for each in self.addresses.values()))
        self.acknowledged: list[int] = []
        """Offsets of the records that Ottla nodes committed as leaders."""

    def ottla_node(self, number: int) -> QuorumServer:
        servers = tuple(("127.0.0.1", each.port) for each in self.addresses.values())
        return QuorumServer(
            number,
            self.directory / str(number),
            QuorumConfig(bootstrap_servers=servers),
            cluster_id=CLUSTER_ID,
            port=self.addresses[number].port,
            directory_id=UUID(int=(number << 64) + 7),
        )

    def segment(self, number: int) -> Path:
        below = "data" if number in self.genuine else "."
        return self.directory / str(number) / below / DIRECTORY / f"{0:020d}.log"

    def records(self, number: int) -> dict[int, bytes]:
        """The metadata records in a node's log, by offset."""
        data = self.segment(number).read_bytes()
        return {
            record.offset: record.value or b""
            for header in iter_batches(data, allow_partial_end=True)
            if not header.is_control
            for record in decode_records(data, header)
        }

    def roles(self) -> dict[int, str]:
        return {row["node"]: row["role"] for row in self.tool.json("quorum", "status")["replicas"]}

    def any_has_elected(self, after: int) -> bool:
        """Whether a genuine node has saved a leader of a later epoch than `after`."""
        for number in self.genuine:
            saved = json.loads((self.segment(number).parent / "quorum-state").read_text())
            if saved["leaderId"] >= 0 and saved["leaderEpoch"] > after:
                return True
        return False

    def add(self, number: int) -> None:
        self.tool("quorum", "add", str(number), "--listener", f"CONTROLLER://{self.addresses[number].endpoint}")

    async def leader(self, after: int) -> tuple[int, int]:
        """The leader and its epoch, once an Ottla node knows one of a later epoch than `after`."""
        found: list[tuple[int, int]] = []

        def is_known() -> bool:
            leaders = [node.node.leader for node in self.ottla.values()]
            found[:] = [(each.leader_id, each.epoch) for each in leaders if each.leader_id is not None]
            return any(epoch > after for _, epoch in found)

        await until(is_known)
        return max(found, key=lambda each: each[1])

    async def kill(self, number: int) -> None:
        if number in self.genuine:
            await asyncio.to_thread(self.genuine[number].kill)
        else:
            self.ottla[number].kill()

    async def restart(self, number: int) -> None:
        if number in self.genuine:
            await asyncio.to_thread(self.genuine[number].start)
        else:
            await self.ottla[number].node.close()
            self.ottla[number] = self.ottla_node(number)
            await self.ottla[number].start()

    async def write(self) -> None:
        """Append to each Ottla node that leads; a genuine leader writes by itself."""
        while True:
            for node in [each.node for each in self.ottla.values()]:
                with suppress(OttlaError):
                    if node.leader.leader_id == node.node_id:
                        self.acknowledged.append(await node.append([NO_OP], epoch=node.leader.epoch))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(quorum: MixedQuorum) -> AsyncIterator[None]:
    for node in quorum.genuine.values():
        await asyncio.to_thread(node.start, wait=False)
    for node in quorum.genuine.values():
        await asyncio.to_thread(node.wait_until_ready)
    for server in quorum.ottla.values():
        await server.start()
    writer = asyncio.create_task(quorum.write())
    try:
        yield
    finally:
        writer.cancel()
        for server in quorum.ottla.values():
            await server.close()
        for node in quorum.genuine.values():
            await asyncio.to_thread(node.kill)


@pytest.mark.parametrize("ottla", [{3}, {2, 3}], ids=["two genuine, one Ottla", "one genuine, two Ottla"])
def test_leaders_are_killed_in_turn_and_nothing_committed_is_lost(tmp_path: Path, ottla: set[int]) -> None:
    quorum = MixedQuorum(tmp_path, ottla)
    led: list[int] = []

    async def run() -> None:
        async with running(quorum):
            await until(lambda: quorum.roles() == {1: "leader", 2: "observer", 3: "observer"})
            for number in (2, 3):
                await asyncio.to_thread(quorum.add, number)
            assert set((await asyncio.to_thread(quorum.roles)).values()) == {"leader", "voter"}
            epoch = 0
            for _ in range(KILLS):
                leader, epoch = await quorum.leader(epoch)
                led.append(leader)
                await committed_more(quorum)
                await quorum.kill(leader)
                if set(quorum.ottla) == {leader}:
                    await until(partial(quorum.any_has_elected, epoch))
                else:
                    await quorum.leader(epoch)
                await quorum.restart(leader)
            recorder = Recorder()
            await quorum.leader(epoch)
            next(iter(quorum.ottla.values())).node.register(recorder)
            await committed_more(quorum)
            last = max(quorum.acknowledged)
            await until(lambda: all(max(quorum.records(number)) >= last for number in (1, 2, 3)))

    asyncio.run(run())
    logs = [quorum.records(number) for number in (1, 2, 3)]
    common = min(max(log) for log in logs)
    assert {offset: value for offset, value in logs[0].items() if offset <= common} == {
        offset: value for offset, value in logs[1].items() if offset <= common
    }
    for log in logs:
        assert [offset for offset in quorum.acknowledged if offset <= common and log.get(offset) != NO_OP] == []
    print(f"leaders: {led}; acknowledged: {len(quorum.acknowledged)}; common end: {common}")
    assert len(set(led)) == 3


async def committed_more(quorum: MixedQuorum) -> None:
    """Wait until an Ottla node knows of another committed record."""
    nodes = [each.node for each in quorum.ottla.values()]
    before = max(node.high_watermark or 0 for node in nodes)
    await until(lambda: max(each.node.high_watermark or 0 for each in quorum.ottla.values()) > before)
