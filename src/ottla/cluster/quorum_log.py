"""PURE. The log of Kafka's own metadata (`__cluster_metadata-0`), read to take a cluster over.

A record's value is a frame version (1), the record's type and its version, each as an unsigned varint, and the record:

    | frame | type | version | record ... |

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
from ottla.protocol.compiled import decode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.primitives import Float64, Int8, Int32, Int64, read_uvarint
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.records.batch import BatchHeader, is_intact, iter_batches
from ottla.records.record import decode_records

if TYPE_CHECKING:
    from ottla.records.batch import Buffer

NO_LEADER_CHANGE: Final = -2
_FRAME_VERSION: Final = 1


@message(versions=(0, 0), flexible=0)
class TopicRecord(Message):
    """Type 2: a topic is there."""

    name: str
    topic_id: UUID


@message(versions=(0, 2), flexible=0)
class PartitionRecord(Message):
    """Type 3: a partition is there."""

    partition_id: Int32 = -1
    topic_id: UUID
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = -1
    leader_recovery_state: Int8 = since(tag=0, default=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[UUID] = since(1, default_factory=list)
    eligible_leader_replicas: list[Int32] | None = since(2, nullable_since=2, tag=1, default=None)
    last_known_elr: list[Int32] | None = since(2, nullable_since=2, tag=2, default=None)


@message(versions=(0, 0), flexible=0)
class ConfigRecord(Message):
    """Type 4: a setting has this value, or none any more."""

    resource_type: Int8
    resource_name: str
    name: str
    value: str | None


@message(versions=(0, 2), flexible=0)
class PartitionChangeRecord(Message):
    """Type 5: something about a partition has changed."""

    partition_id: Int32 = -1
    topic_id: UUID
    isr: list[Int32] | None = since(tag=0, default=None)
    leader: Int32 = since(tag=1, default=NO_LEADER_CHANGE)
    replicas: list[Int32] | None = since(tag=2, default=None)
    removing_replicas: list[Int32] | None = since(tag=3, default=None)
    adding_replicas: list[Int32] | None = since(tag=4, default=None)
    leader_recovery_state: Int8 = since(tag=5, default=-1)
    eligible_leader_replicas: list[Int32] | None = since(2, nullable_since=2, tag=6, default=None)
    last_known_elr: list[Int32] | None = since(2, nullable_since=2, tag=7, default=None)
    directories: list[UUID] | None = since(1, nullable_since=1, tag=8, default=None)


@message(versions=(0, 0), flexible=0)
class RemoveTopicRecord(Message):
    """Type 9: a topic is gone."""

    topic_id: UUID


@struct
class QuotaEntityData(Struct):
    """A part of the entity of a quota; without a name, the default."""

    entity_type: str
    entity_name: str | None


@message(versions=(0, 0), flexible=0)
class ClientQuotaRecord(Message):
    """Type 14: a quota has this value, or is gone."""

    entity: list[QuotaEntityData]
    key: str
    value: Float64
    remove: bool


@message(versions=(0, 0), flexible=0)
class ProducerIdsRecord(Message):
    """Type 15: producer ids below `next_producer_id` have been given out."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


_RECORDS: Final[dict[int, type[Message]]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
}
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

    def read(self, batches: Buffer, named: str) -> None:
        """Apply the batches of a snapshot or segment; those before `next_offset` are skipped.

        An incomplete or damaged end is ignored: its records were never acknowledged. Raises CorruptMessage for records
        that
        no quorum writes; `named` is the name of the source.
        """
        view = memoryview(batches)
        try:
            for header in iter_batches(view, allow_partial_end=True):
                if not is_intact(view, header):
                    return
                self._read_batch(view, header)
        except ProtocolError as error:
            raise CorruptMessage(f"{named}: {error}") from error

    def _read_batch(self, view: memoryview, header: BatchHeader) -> None:
        if header.is_control or header.next_offset <= self.next_offset:
            self.next_offset = max(self.next_offset, header.next_offset)
            return
        for record in decode_records(view, header):
            if record.value is None or record.offset < self.next_offset:
                continue
            frame, position = read_uvarint(record.value, 0)
            kind, position = read_uvarint(record.value, position)
            version, position = read_uvarint(record.value, position)
            if frame != _FRAME_VERSION:
                raise CorruptMessage(f"a metadata record at offset {record.offset} has frame version {frame}")
            if kind == _BEGIN_TRANSACTION:
                self._pending = []
            elif kind == _END_TRANSACTION:
                self._end_transaction()
            elif kind == _ABORT_TRANSACTION:
                self._pending = None
            elif kind in _RECORDS:
                self._take(decode(_RECORDS[kind], record.value, version, position))
        self.next_offset = header.next_offset

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
