"""Follows the metadata log of a quorum by plain fetches, in memory: a `QuorumNode` for tests of brokers."""

import asyncio
from typing import Any
from uuid import UUID

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import ClientError
from ottla.client.sansio.handshake import handshake
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records

METADATA_TOPIC = UUID(int=1)
CONTROL = 0x20
VERSION = 17


class LogObserver:
    """An observer that keeps nothing, for a log without snapshots."""

    def __init__(self, node_id: int, addresses: list[tuple[str, int]]) -> None:
        self.node_id = node_id
        self.leader = LeaderAndEpoch(None, 0)
        self.high_watermark: int | None = None
        self._addresses = addresses
        self._endpoint: tuple[str, int] | None = None
        self._offset, self._last_epoch = 0, 0
        self._listener: Any = None
        self._task: asyncio.Task[None] | None = None
        self._pending: list[CommittedBatch] = []

    def register(self, listener: Any, snapshot_records: Any = None) -> None:
        self._listener = listener

    def leader_endpoint(self) -> tuple[str, int] | None:
        return self._endpoint

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        turn = 0
        while True:
            address = self._endpoint or self._addresses[turn % len(self._addresses)]
            turn += 1
            connection = AsyncConnection(*address, "observer", handshake=handshake)
            try:
                while await self._fetch(connection, address):
                    pass
            except ClientError:
                self._endpoint = None
                await asyncio.sleep(0.1)
            finally:
                connection.close()

    async def _fetch(self, connection: AsyncConnection, address: tuple[str, int]) -> bool:
        """Whether this node leads."""
        part = FetchPartition(
            partition=0,
            current_leader_epoch=self.leader.epoch if self._endpoint else -1,
            fetch_offset=self._offset,
            last_fetched_epoch=self._last_epoch,
            partition_max_bytes=1 << 20,
            replica_directory_id=UUID(int=77),
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id),
            max_wait_ms=500,
            min_bytes=0,
            topics=[FetchTopic(topic_id=METADATA_TOPIC, partitions=[part])],
        )
        answer = await connection.ask(request, VERSION, timeout_s=5)
        assert not answer.error_code, answer
        found = answer.responses[0].partitions[0]
        leader = found.current_leader
        if leader is not None and leader.leader_epoch >= self.leader.epoch:
            self.leader = LeaderAndEpoch(leader.leader_id if leader.leader_id >= 0 else None, leader.leader_epoch)
            known = {node.node_id: (node.host, node.port) for node in answer.node_endpoints}
            self._endpoint = known.get(leader.leader_id, address if not found.error_code else None)
        if found.error_code:
            await asyncio.sleep(0.05)
            return self._endpoint == address
        self._endpoint = self._endpoint or address
        assert found.snapshot_id is None, found.snapshot_id
        if found.diverging_epoch is not None:
            self._offset, self._last_epoch = found.diverging_epoch.end_offset, found.diverging_epoch.epoch
            return True
        records = found.records or b""
        for header in iter_batches(records, allow_partial_end=True):
            self._offset, self._last_epoch = header.last_offset + 1, header.leader_epoch
            if not header.attributes & CONTROL:
                values = tuple(bytes(record.value or b"") for record in decode_records(records, header))
                last = header.last_offset
                self._pending.append(
                    CommittedBatch(header.base_offset, last, header.leader_epoch, header.max_timestamp, values)
                )
        self.high_watermark = found.high_watermark
        while self._pending and self._pending[0].last_offset < found.high_watermark:
            self._listener.handle_commit(self._pending.pop(0))
        return True
