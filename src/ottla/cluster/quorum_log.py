"""PURE. The log of Kafka's own metadata (`__cluster_metadata-0`), read to take a cluster over.

Only what Ottla keeps too is read: topics, partitions, settings, quotas and producer ids. Records between a begin and
an end of transaction count only if it was not aborted (KIP-868).

Source: KIP-631 and the record definitions of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.image import ResourceType
from ottla.errors import CorruptMessage
from ottla.protocol.errors import ProtocolError
from ottla.protocol.metadata_records import (
    NO_LEADER_CHANGE,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_framed,
    read_frame,
)
from ottla.records.batch import BatchHeader, is_intact, iter_batches
from ottla.records.record import decode_records

if TYPE_CHECKING:
    from ottla.protocol.schema import Message
    from ottla.records.batch import Buffer

_KEPT: Final = frozenset({2, 3, 4, 5, 9, 14, 15})
"""The types of records that are read."""
_FOOTER: Final = b"\0\0\0\4"
"""The key of the control record that ends a snapshot (KIP-630)."""
_BEGIN_TRANSACTION: Final = 23
_END_TRANSACTION: Final = 24
_ABORT_TRANSACTION: Final = 25


@dataclass(slots=True)
class QuorumPartition:
    """A partition in the last state of Kafka's controller."""

    replicas: list[int]
    leader_epoch: int


@dataclass(slots=True)
class QuorumTopic:
    """A topic in the last state of Kafka's controller."""

    name: str
    topic_id: UUID
    partitions: dict[int, QuorumPartition] = field(default_factory=dict)


@dataclass(slots=True)
class QuorumState:
    """What the records read so far add up to."""

    topics: dict[UUID, QuorumTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    """Values by entity: the type and name of each of its parts."""
    next_producer_id: int = 0
    next_offset: int = 0
    """Offset of the first record that was not read."""
    _pending: list[Message] | None = None
    """Records of a transaction that has not ended."""

    def read_snapshot(self, batches: Buffer, named: str, next_offset: int) -> None:
        """Apply a whole snapshot, which stands for all records before `next_offset`.

        Raises CorruptMessage if it is damaged or incomplete, or as `read`.
        """
        last = self._read_intact(batches, named)
        if last is None or not last.is_control or _last_key(batches, last) != _FOOTER:
            raise CorruptMessage(f"{named} is damaged or incomplete: the footer of the snapshot cannot be reached")
        self.next_offset = next_offset

    def read(self, batches: Buffer, named: str) -> None:
        """Apply the batches of a segment; those before `next_offset` are skipped.

        An incomplete or damaged end is ignored: its records were never acknowledged. Raises CorruptMessage for records
        that no quorum writes, and where records are missing; `named` is the name of the source.
        """
        self._read_intact(batches, named)

    def _read_intact(self, batches: Buffer, named: str) -> BatchHeader | None:
        """Apply all batches up to the first that is damaged or incomplete; returns the last one."""
        view = memoryview(batches)
        last = None
        for header in iter_batches(view, allow_partial_end=True):
            if not is_intact(view, header):
                break
            if header.base_offset > self.next_offset:
                raise CorruptMessage(
                    f"{named}: the records of the metadata log from offset {self.next_offset} to "
                    f"{header.base_offset - 1} are missing"
                )
            self._read_batch(view, header, named)
            last = header
        return last

    def _read_batch(self, view: memoryview, header: BatchHeader, named: str) -> None:
        if header.is_control or header.next_offset <= self.next_offset:
            self.next_offset = max(self.next_offset, header.next_offset)
            return
        for record in decode_records(view, header):
            if record.value is None or record.offset < self.next_offset:
                continue
            try:
                self._read_record(record.value)
            except ProtocolError as error:
                raise CorruptMessage(f"{named}, offset {record.offset}: {error}") from error
            except KeyError as unknown:
                raise CorruptMessage(
                    f"{named}, offset {record.offset}: there is no topic or partition {unknown}"
                ) from unknown
        self.next_offset = header.next_offset

    def _read_record(self, value: bytes) -> None:
        frame = read_frame(value)
        if frame.type == _BEGIN_TRANSACTION:
            self._pending = []
        elif frame.type == _END_TRANSACTION:
            self._end_transaction()
        elif frame.type == _ABORT_TRANSACTION:
            self._pending = None
        elif frame.type in _KEPT:
            self._take(decode_framed(value, frame))

    def _end_transaction(self) -> None:
        pending, self._pending = self._pending or [], None
        for found in pending:
            self._apply(found)

    def _take(self, found: Message) -> None:
        if self._pending is None:
            self._apply(found)
        else:
            self._pending.append(found)

    def _apply(self, found: Message) -> None:
        match found:
            case TopicRecord():
                self.topics[found.topic_id] = QuorumTopic(found.name, found.topic_id)
            case PartitionRecord():
                self.topics[found.topic_id].partitions[found.partition_id] = QuorumPartition(
                    found.replicas, found.leader_epoch
                )
            case PartitionChangeRecord():
                partition = self.topics[found.topic_id].partitions[found.partition_id]
                if found.replicas is not None:
                    partition.replicas = found.replicas
                if found.leader != NO_LEADER_CHANGE:
                    partition.leader_epoch += 1
            case RemoveTopicRecord():
                gone = self.topics.pop(found.topic_id)
                self.configs.pop((ResourceType.TOPIC, gone.name), None)
            case ConfigRecord():
                configs = self.configs.setdefault((found.resource_type, found.resource_name), {})
                if found.value is None:
                    configs.pop(found.name, None)
                else:
                    configs[found.name] = found.value
            case ClientQuotaRecord():
                entity = tuple((part.entity_type, part.entity_name) for part in found.entity)
                quotas = self.quotas.setdefault(entity, {})
                if found.remove:
                    quotas.pop(found.key, None)
                else:
                    quotas[found.key] = found.value
            case ProducerIdsRecord():
                self.next_producer_id = found.next_producer_id


def _last_key(batches: Buffer, header: BatchHeader) -> bytes | None:
    *_, last = decode_records(memoryview(batches), header)
    return last.key
