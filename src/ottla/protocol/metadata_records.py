"""The records of Kafka's metadata log, `__cluster_metadata-0`, and of its snapshots: all types, in all versions.

A record has no key. Its value is a frame version (1), the record's type and its version, each as an unsigned varint,
and then the record in that version, with nothing after it:

    | frame | type | version | record ... |

All are flexible (KIP-482). Control records of the same log are in `ottla.protocol.messages`: `control_records` and
`quorum_records`.

Type, and what its versions after 0 added:

     0 RegisterBroker            1 controlled shutdown, 2 ZooKeeper's brokers (KIP-866), 3 directories (KIP-858),
                                 4 cordoned directories
     1 UnregisterBroker
     2 Topic
     3 Partition                 1 directories (KIP-858), 2 eligible leader replicas (KIP-966)
     4 Config
     5 PartitionChange           1 and 2 as Partition
     7 FenceBroker               until Kafka 3.2; since then BrokerRegistrationChange
     8 UnfenceBroker             as FenceBroker
     9 RemoveTopic
    10 DelegationToken
    11 UserScramCredential
    12 FeatureLevel
    14 ClientQuota
    15 ProducerIds
    17 BrokerRegistrationChange  1 controlled shutdown, 2 directories (KIP-858), 3 cordoned directories
    18 AccessControlEntry
    19 RemoveAccessControlEntry
    20 NoOp
    21 ZkMigrationState
    22 RemoveUserScramCredential
    23 BeginTransaction          (KIP-868, as 24 and 25)
    24 EndTransaction
    25 AbortTransaction
    26 RemoveDelegationToken
    27 RegisterController        (KIP-919)
    28 ClearElr                  (KIP-966)

Source: KIP-631 and the record definitions of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.protocol.compiled import decode_from, encode_after
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.protocol.messages.quorum_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.primitives import Float64, Int8, Int16, Int32, Int64, UInt16, read_uvarint, uvarint
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import version_of

if TYPE_CHECKING:
    from ottla.protocol.primitives import Buffer

FRAME_VERSION: Final = 1
NO_LEADER_CHANGE: Final = -2
"""`PartitionChangeRecord.leader` where the leader stays."""

# --- nodes -----------------------------------------------------------------------------------------------------


@message(versions=(0, 4), flexible=0)
class RegisterBrokerRecord(Message):
    """A broker has started: its addresses, the levels it supports, its log directories."""

    broker_id: Int32
    is_migrating_zk_broker: bool = since(2, default=False)
    incarnation_id: UUID
    broker_epoch: Int64
    end_points: list[Endpoint]
    features: list[FeatureRange]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = since(1, default=False)
    log_dirs: list[UUID] = since(3, tag=0, default_factory=list)
    cordoned_log_dirs: list[UUID] | None = since(4, tag=1, default=None)


@struct
class Endpoint(Struct):
    """A listener of a node; `security_protocol` by Kafka's number."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@struct
class FeatureRange(Struct):
    """The levels of a feature that a node supports."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(versions=(0, 0), flexible=0)
class UnregisterBrokerRecord(Message):
    """A broker is forgotten."""

    broker_id: Int32
    broker_epoch: Int64


@message(versions=(0, 0), flexible=0)
class FenceBrokerRecord(Message):
    """A broker is fenced: it leads nothing."""

    id: Int32
    epoch: Int64


@message(versions=(0, 0), flexible=0)
class UnfenceBrokerRecord(Message):
    """A broker is fenced no longer."""

    id: Int32
    epoch: Int64


@message(versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord(Message):
    """A broker's registration has changed: 1 sets a flag, -1 clears it, 0 leaves it; directories replace all others."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = since(tag=0, default=0)
    in_controlled_shutdown: Int8 = since(1, tag=1, default=0)
    log_dirs: list[UUID] = since(2, tag=2, default_factory=list)
    cordoned_log_dirs: list[UUID] | None = since(3, tag=3, default=None)


@message(versions=(0, 0), flexible=0)
class RegisterControllerRecord(Message):
    """A controller has started."""

    controller_id: Int32
    incarnation_id: UUID
    zk_migration_ready: bool
    end_points: list[Endpoint]
    features: list[FeatureRange]


# --- topics ----------------------------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class TopicRecord(Message):
    """A topic is there."""

    name: str
    topic_id: UUID


@message(versions=(0, 2), flexible=0)
class PartitionRecord(Message):
    """A partition is there; `directories` are those of `replicas`, in the same order."""

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
    eligible_leader_replicas: list[Int32] | None = since(2, tag=1, default=None)
    last_known_elr: list[Int32] | None = since(2, tag=2, default=None)


@message(versions=(0, 2), flexible=0)
class PartitionChangeRecord(Message):
    """Something about a partition has changed; null, -1 and `NO_LEADER_CHANGE` leave a field as it was."""

    partition_id: Int32 = -1
    topic_id: UUID
    isr: list[Int32] | None = since(tag=0, default=None)
    leader: Int32 = since(tag=1, default=NO_LEADER_CHANGE)
    replicas: list[Int32] | None = since(tag=2, default=None)
    removing_replicas: list[Int32] | None = since(tag=3, default=None)
    adding_replicas: list[Int32] | None = since(tag=4, default=None)
    leader_recovery_state: Int8 = since(tag=5, default=-1)
    directories: list[UUID] | None = since(1, tag=8, default=None)
    eligible_leader_replicas: list[Int32] | None = since(2, tag=6, default=None)
    last_known_elr: list[Int32] | None = since(2, tag=7, default=None)


@message(versions=(0, 0), flexible=0)
class RemoveTopicRecord(Message):
    """A topic is gone."""

    topic_id: UUID


@message(versions=(0, 0), flexible=0)
class ClearElrRecord(Message):
    """The eligible leader replicas of a topic are forgotten; those of all topics where the name is empty."""

    topic_name: str


# --- settings, quotas, features --------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class ConfigRecord(Message):
    """A setting of a resource has this value; null removes it."""

    resource_type: Int8
    resource_name: str
    name: str
    value: str | None


@message(versions=(0, 0), flexible=0)
class ClientQuotaRecord(Message):
    """A quota has this value, or is gone."""

    entity: list[QuotaEntity]
    key: str
    value: Float64
    remove: bool


@struct
class QuotaEntity(Struct):
    """A part of the entity of a quota; without a name, the default."""

    entity_type: str
    entity_name: str | None


@message(versions=(0, 0), flexible=0)
class FeatureLevelRecord(Message):
    """A feature is finalized at this level, `metadata.version` among them."""

    name: str
    feature_level: Int16


@message(versions=(0, 0), flexible=0)
class ProducerIdsRecord(Message):
    """Producer ids below `next_producer_id` have been given out."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(versions=(0, 0), flexible=0)
class ZkMigrationStateRecord(Message):
    """How far the move from ZooKeeper has come (KIP-866)."""

    zk_migration_state: Int8


# --- logins and rights -----------------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class UserScramCredentialRecord(Message):
    """A user's credential of SCRAM, `mechanism` 1 for SHA-256 and 2 for SHA-512."""

    name: str
    mechanism: Int8
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: Int32


@message(versions=(0, 0), flexible=0)
class RemoveUserScramCredentialRecord(Message):
    """A user's credential of SCRAM is gone."""

    name: str
    mechanism: Int8


@message(versions=(0, 0), flexible=0)
class DelegationTokenRecord(Message):
    """A delegation token, without its secret; times in milliseconds."""

    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


@message(versions=(0, 0), flexible=0)
class RemoveDelegationTokenRecord(Message):
    """A delegation token is gone."""

    token_id: str


@message(versions=(0, 0), flexible=0)
class AccessControlEntryRecord(Message):
    """An access rule; types, operation and permission by Kafka's numbers."""

    id: UUID
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(versions=(0, 0), flexible=0)
class RemoveAccessControlEntryRecord(Message):
    """An access rule is gone."""

    id: UUID


# --- the log itself --------------------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class NoOpRecord(Message):
    """Changes nothing; written so that replicas see the log advance."""


@message(versions=(0, 0), flexible=0)
class BeginTransactionRecord(Message):
    """The records that follow count only if the transaction ends (KIP-868)."""

    name: str | None = since(tag=0, default=None)


@message(versions=(0, 0), flexible=0)
class EndTransactionRecord(Message):
    """The records since the transaction began count."""


@message(versions=(0, 0), flexible=0)
class AbortTransactionRecord(Message):
    """The records since the transaction began do not count."""

    reason: str | None = since(tag=0, default=None)


# --- frames ----------------------------------------------------------------------------------------------------

RECORD_TYPES: Final[Mapping[int, type[Message]]] = MappingProxyType(
    {
        0: RegisterBrokerRecord,
        1: UnregisterBrokerRecord,
        2: TopicRecord,
        3: PartitionRecord,
        4: ConfigRecord,
        5: PartitionChangeRecord,
        7: FenceBrokerRecord,
        8: UnfenceBrokerRecord,
        9: RemoveTopicRecord,
        10: DelegationTokenRecord,
        11: UserScramCredentialRecord,
        12: FeatureLevelRecord,
        14: ClientQuotaRecord,
        15: ProducerIdsRecord,
        17: BrokerRegistrationChangeRecord,
        18: AccessControlEntryRecord,
        19: RemoveAccessControlEntryRecord,
        20: NoOpRecord,
        21: ZkMigrationStateRecord,
        22: RemoveUserScramCredentialRecord,
        23: BeginTransactionRecord,
        24: EndTransactionRecord,
        25: AbortTransactionRecord,
        26: RemoveDelegationTokenRecord,
        27: RegisterControllerRecord,
        28: ClearElrRecord,
    }
)
"""The records' classes, by type."""
_TYPE_OF: Final = {cls: number for number, cls in RECORD_TYPES.items()}

CONTROL_TYPES: Final[Mapping[int, type[Message]]] = MappingProxyType(
    {
        2: LeaderChangeMessage,
        3: SnapshotHeaderRecord,
        4: SnapshotFooterRecord,
        5: KRaftVersionRecord,
        6: VotersRecord,
    }
)
"""Control records of the log and its snapshots, by the type in their keys."""
_CONTROL_KEY: Final = Layout(">hh")


_SHORT_FRAME: Final = 3
_LONG: Final = 0x80
"""The first byte of a varint that goes on."""


class Frame(NamedTuple):
    """What precedes a record: its type, its version, and the position of its first byte."""

    type: int
    version: int
    position: int


def encode_record(record: Message, version: int) -> bytes:
    """The value of a metadata record. Raises as `ottla.protocol.codec.encode`."""
    head = bytearray(uvarint(FRAME_VERSION) + uvarint(_TYPE_OF[type(record)]) + uvarint(version))
    return b"".join(encode_after(head, record, version))  # type: ignore[arg-type]  # without record batches in them


def read_frame(value: Buffer) -> Frame:
    """The frame of a record's value. Raises `MalformedMessage`; `UnsupportedVersion` for another version of frames."""
    if len(value) > _SHORT_FRAME and value[0] == FRAME_VERSION and value[1] < _LONG and value[2] < _LONG:
        return Frame(value[1], value[2], _SHORT_FRAME)  # as nearly all are
    try:
        frame, position = read_uvarint(value, 0)
        if frame != FRAME_VERSION:
            raise UnsupportedVersion(f"a metadata record has frame version {frame}, and only {FRAME_VERSION} is known")
        kind, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise MalformedMessage(f"a metadata record of {len(value)} bytes ends within its frame") from None
    return Frame(kind, version, position)


def decode_framed(value: Buffer, frame: Frame) -> Message:
    """The record behind its frame.

    Raises `UnsupportedVersion` for an unknown type or version, `MalformedMessage` for bytes that are not such a record,
    or that go on after it.
    """
    cls = RECORD_TYPES.get(frame.type)
    if cls is None:
        raise UnsupportedVersion(f"metadata record type {frame.type} (version {frame.version}) is not known")
    record, end = decode_from(cls, value, frame.version, frame.position)
    if end != len(value):
        raise MalformedMessage(f"{len(value) - end} bytes follow the end of a {cls.__name__}")
    return record


def decode_record(value: Buffer) -> tuple[Message, int]:
    """The record in a value, and its version. Raises as `read_frame` and `decode_framed`."""
    frame = read_frame(value)
    return decode_framed(value, frame), frame.version


def decode_control(key: Buffer, value: Buffer) -> tuple[Message, int]:
    """The control record of a key (`version int16 | type int16`) and a value, and its version.

    The value begins with its version, which is also the record's first field. Raises as `decode_framed`.
    """
    if len(key) < _CONTROL_KEY.size:
        raise MalformedMessage(f"the key of a control record has {len(key)} bytes, not {_CONTROL_KEY.size}")
    _, kind = _CONTROL_KEY.unpack_from(key)
    cls = CONTROL_TYPES.get(kind)
    if cls is None:
        raise UnsupportedVersion(f"control record type {kind} is not known in a metadata log")
    version = version_of(value)
    record, end = decode_from(cls, value, version)
    if end != len(value):
        raise MalformedMessage(f"{len(value) - end} bytes follow the end of a {cls.__name__}")
    return record, version
