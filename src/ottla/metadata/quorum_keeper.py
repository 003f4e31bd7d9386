"""Keeps metadata in the log of a quorum: commands become records, and records, once committed, the image.

A change is one batch, or a transaction of several if it is too large for one (KIP-868): all of it counts, or nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.cluster.commands import Command
from ottla.cluster.commit_parts import Piece
from ottla.cluster.image import MetadataImage
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import TRANSACTIONS_SINCE
from ottla.cluster.metadata_log.records import each_record
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId, ProducerId
from ottla.metadata.keeper import NO_LEVELS, Found
from ottla.metadata.producer_ids import MAX_PRODUCER_ID
from ottla.metadata.quorum.node import NotQuorumLeader, QuorumNode
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.store.base import TransactionTooLarge
from ottla.metadata.store.layout import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from ottla.protocol.metadata_records import (
    RECORD_TYPES,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
    read_frame,
)
from ottla.protocol.schema import Message
from ottla.slices import Slices

BATCH_BYTES: Final = 4 << 20
"""Half of what a batch may hold."""
BATCH_RECORDS: Final = 10_000
NO_TERM: Final = -1
NEVER: Final = float("-inf")


class QuorumKeeper:
    """Appends to the log while this node leads the quorum. On the loop's thread, one commit at a time."""

    is_shared: Final = True
    only_levels: Final = NO_LEVELS

    def __init__(self, node: QuorumNode, replay: QuorumReplay, slices: Slices, boottime: Callable[[], float]) -> None:
        self._node = node
        self._replay = replay
        self._slices = slices
        self._boottime = boottime
        self.epoch = NO_TERM
        """The epoch of this node's term as controller; `NO_TERM` while it has none."""
        self.led_at_s = NEVER
        """When this node certainly led the quorum, by its own clock: no other node had been elected when it appended
        what is committed."""
        self._has_committed = asyncio.Event()

    def begin_term(self, epoch: int) -> None:
        """Append in this epoch from now on."""
        self.epoch, self.led_at_s = epoch, NEVER

    async def until_led_after(self, since_s: float) -> None:
        """Wait for a commit of something that was appended after a time."""
        while self.led_at_s <= since_s:
            self._has_committed.clear()
            await self._has_committed.wait()

    async def read(self) -> Found:
        """What has been replayed."""
        return Found(self._replay.image, [])

    def in_parts(self, commands: Sequence[Command], image: MetadataImage) -> list[list[Piece]]:
        """All in one part: the log takes any number at once."""
        return [[Piece(number, command) for number, command in enumerate(commands)]] if commands else []

    async def commit(self, commands: Sequence[Command], image: MetadataImage) -> MetadataImage:
        """Append the commands' records. Raises `NotQuorumLeader`: it is not known whether they stay."""
        await self.append([], commands)
        return self._replay.image

    async def allocate_producer_ids(self, broker_id: BrokerId) -> ProducerIdBlock:
        """The next block, for a broker. Raises `ApiError` UNKNOWN_SERVER_ERROR if none is left, `NotQuorumLeader`."""
        first = self._replay.state.next_producer_id or 0
        if first + PRODUCER_ID_BLOCK_SIZE - 1 > MAX_PRODUCER_ID:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Every producer id has been given out.")
        broker = self._replay.state.brokers.get(broker_id)
        record = ProducerIdsRecord(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
        )
        await self.append([record])
        return ProducerIdBlock(broker_id, ProducerId(first), ProducerId(first + PRODUCER_ID_BLOCK_SIZE - 1))

    async def raise_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise the quorum's own level; returns once that is committed. Raises `OttlaError`, as `QuorumNode` does."""
        await self._node.raise_kraft_version(level, epoch=self.epoch, validate_only=validate_only)
        if not validate_only:
            await self.append([NoOpRecord()])  # committed after it

    # -- records -----------------------------------------------------------------------------------------------------

    @property
    def kraft_version(self) -> int:
        """See `QuorumNode`."""
        return self._node.kraft_version

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._node.next_offset

    async def append(
        self, messages: Sequence[Message], commands: Sequence[Command] = (), *, level: int | None = None
    ) -> None:
        """Append records and those of commands, all or none; returns once they are committed and replayed.

        The first message that is not preceded by a transaction's begin is at `next_offset`. `level` is the
        `metadata.version` to write at, if it is not the state's.

        Raises `NotQuorumLeader`, `TransactionTooLarge` (a `metadata.version` without transactions).
        """
        version = self._replay.state.metadata_version if level is None else level
        records: list[bytes] = []
        for message in messages:
            records.append(framed(message, version))
            await self._slices.pause()
        for record in each_record(commands, self._replay.state):
            records.append(record)
            await self._slices.pause()
        await self.append_framed(records, version)

    async def append_framed(self, records: Sequence[bytes], version: int) -> None:
        """Append framed records, all or none. Raises as `append`."""
        epoch = self.epoch
        if epoch == NO_TERM:
            raise NotQuorumLeader(f"node {self._node.node_id} is not the active controller")
        batches = list(_in_batches(records))
        if len(batches) > 1:
            if version < TRANSACTIONS_SINCE:
                raise TransactionTooLarge(
                    f"{len(records)} records are too many for one batch, and metadata.version {version} has no "
                    "transactions: ask for less at once, or raise it"
                )
            if not any(map(_begins_transaction, records[:2])):  # those of a new term bring it along
                batches[0].insert(0, framed(BeginTransactionRecord(), version))
                batches[-1].append(framed(EndTransactionRecord(), version))
        began_s = self._boottime()
        for committed in [self._node.append(batch, epoch=epoch) for batch in batches]:
            await committed
        if batches and self.epoch == epoch:
            self.led_at_s = began_s
            self._has_committed.set()


def _begins_transaction(record: bytes) -> bool:
    return RECORD_TYPES.get(read_frame(record).type) is BeginTransactionRecord


def _in_batches(records: Sequence[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in records:
        if batch and (size + len(record) > BATCH_BYTES or len(batch) >= BATCH_RECORDS):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record)
    if batch:
        yield batch
