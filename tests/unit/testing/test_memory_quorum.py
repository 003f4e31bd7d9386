import asyncio
from collections.abc import Iterable

import pytest

from ottla.metadata.quorum.node import (
    CommittedBatch,
    LeaderAndEpoch,
    NotQuorumLeader,
    OffsetAndEpoch,
    QuorumNode,
)
from ottla.testing.memory_quorum import MemoryQuorum


class Recorder:
    def __init__(self) -> None:
        self.events: list[object] = []

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        self.events.append((snapshot, *records))

    def handle_commit(self, batch: CommittedBatch) -> None:
        self.events.append((batch.base_offset, *batch.records))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.events.append(leader)


def test_memory_quorum_delivers_in_order_and_replays_from_its_snapshot() -> None:
    async def run() -> None:
        node: QuorumNode = MemoryQuorum(7)
        first, second = Recorder(), Recorder()
        node.register(first)
        await node.start()
        assert node.next_offset == 1
        assert await node.append([b"a", b"b"], epoch=1) == 2
        await node.write_snapshot(OffsetAndEpoch(3, 1), [b"ab"])
        assert await node.append([b"c"], epoch=1) == 3
        node.register(second)
        assert first.events == [LeaderAndEpoch(None, 0), LeaderAndEpoch(7, 1), (1, b"a", b"b"), (3, b"c")]
        assert second.events == [(OffsetAndEpoch(3, 1), b"ab"), (3, b"c"), LeaderAndEpoch(7, 1)]
        node.resign(1)
        with pytest.raises(NotQuorumLeader, match="in epoch 1"):
            node.append([b"d"], epoch=1)
        assert node.leader == (7, 3)

    asyncio.run(run())
