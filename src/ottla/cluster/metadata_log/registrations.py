"""PURE. Brokers and controllers as they have registered with the quorum.

A registration outlives its broker: a broker that is gone is fenced, and stays until it is unregistered.
Source: KIP-631, KIP-858 (directories), KIP-919 (controllers); Kafka 4.3, `BrokerRegistration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import SECURITY_PROTOCOL_CODES, BrokerImage
from ottla.cluster.metadata_log.levels import CORDONED_SINCE, DIRECTORIES_SINCE, MIGRATION_SINCE
from ottla.cluster.metadata_log.partitions import LOST, MIGRATING, UNASSIGNED, marked_full
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId
from ottla.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

_HALVES: Final = Struct(">qq")
SECURITY_PROTOCOLS: Final[Mapping[int, str]] = MappingProxyType(
    {code: name for name, code in SECURITY_PROTOCOL_CODES.items()}
)
CONFIRMS_LEADERSHIP: Final = "ottla.leadership.confirmation"
"""The feature with which Ottla's brokers register: they confirm that they lead, when they are elected (ADR 15)."""


class ListenerAddress(NamedTuple):
    """Where a node listens; `security_protocol` by Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistration(NamedTuple):
    """A registered broker."""

    broker_id: BrokerId
    incarnation_id: UUID
    """A new one for every start of the process."""
    epoch: int
    """The offset of its registration."""
    listeners: tuple[ListenerAddress, ...]
    features: Mapping[str, tuple[int, int]]
    """The lowest and highest level that it supports of each."""
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[UUID, ...]
    """Its log directories that are online, sorted; empty if it has not reported any."""
    cordoned: tuple[UUID, ...] | None = None
    """Those of them that take no new partitions; None if it has reported none."""
    is_from_zookeeper: bool = False

    def is_online(self, directory: UUID) -> bool:
        """Whether replicas in a directory are served."""
        if directory in (UNASSIGNED, MIGRATING):
            return True
        return directory != LOST and (not self.directories or directory in self.directories)

    def is_full(self, directory: UUID) -> bool:
        """Whether this is one of its log directories, marked as full."""
        return marked_full(directory) in self.directories

    def place_of_new_replicas(self) -> UUID:
        """The directory that a new replica is recorded in until the broker reports another one."""
        if not self.directories:
            return MIGRATING
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED

    def image(self) -> BrokerImage:
        """The broker in the image, which has those that are not fenced."""
        return BrokerImage(
            self.broker_id,
            self.epoch,
            self.rack,
            {listener.name: (listener.host, listener.port) for listener in self.listeners},
            CONFIRMS_LEADERSHIP in self.features,
            {
                listener.name: SECURITY_PROTOCOLS[listener.security_protocol]
                for listener in self.listeners
                if listener.security_protocol
            },
        )


class ControllerRegistration(NamedTuple):
    """A registered controller."""

    controller_id: int
    incarnation_id: UUID
    listeners: tuple[ListenerAddress, ...]
    features: Mapping[str, tuple[int, int]]
    is_ready_for_migration: bool = False


def registered_broker(record: RegisterBrokerRecord) -> BrokerRegistration:
    """The registration in a record. Raises `CorruptMessage` for a security protocol that does not exist."""
    return BrokerRegistration(
        BrokerId(record.broker_id),
        record.incarnation_id,
        record.broker_epoch,
        _listeners(record.end_points),
        _features(record.features),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        _sorted(record.log_dirs),
        None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        record.is_migrating_zk_broker,
    )


def registered_controller(record: RegisterControllerRecord) -> ControllerRegistration:
    """The registration in a record. Raises `CorruptMessage` for a security protocol that does not exist."""
    return ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        _listeners(record.end_points),
        _features(record.features),
        record.zk_migration_ready,
    )


def changed_broker(before: BrokerRegistration, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
    """The registration after a change. Raises `CorruptMessage` for a flag that is none."""
    return before._replace(
        fenced=_flag(before.fenced, record.fenced),
        in_controlled_shutdown=_flag(before.in_controlled_shutdown, record.in_controlled_shutdown),
        directories=_sorted(record.log_dirs) or before.directories,
        cordoned=before.cordoned if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
    )


def broker_record(broker: BrokerRegistration, level: int) -> RegisterBrokerRecord:
    """The record of a registration at a level of `metadata.version`, without what that cannot express."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_from_zookeeper and level >= MIGRATION_SINCE,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_end_points(broker.listeners),
        features=_ranges(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=[*broker.directories] if level >= DIRECTORIES_SINCE else [],
        cordoned_log_dirs=None if broker.cordoned is None or level < CORDONED_SINCE else [*broker.cordoned],
    )


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """The record of a controller's registration."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_ready_for_migration,
        end_points=_end_points(controller.listeners),
        features=_ranges(controller.features),
    )


def _flag(before: bool, change: int) -> bool:
    if change not in (-1, 0, 1):
        raise CorruptMessage(f"a change of a broker's registration has the flag {change}; it is -1, 0 or 1")
    return change > 0 if change else before


def _listeners(found: Sequence[Endpoint]) -> tuple[ListenerAddress, ...]:
    listeners = tuple(ListenerAddress(end.name, end.host, end.port, end.security_protocol) for end in found)
    for listener in listeners:
        if listener.security_protocol not in SECURITY_PROTOCOLS:
            raise CorruptMessage(
                f"listener {listener.name} has no known security protocol: {listener.security_protocol}"
            )
    return listeners


def _features(found: Sequence[FeatureRange]) -> Mapping[str, tuple[int, int]]:
    return {each.name: (each.min_supported_version, each.max_supported_version) for each in found}


def _end_points(listeners: Sequence[ListenerAddress]) -> list[Endpoint]:
    return [
        Endpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in listeners
    ]


def _ranges(features: Mapping[str, tuple[int, int]]) -> list[FeatureRange]:
    return [
        FeatureRange(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in features.items()
    ]


def _sorted(directories: Iterable[UUID]) -> tuple[UUID, ...]:
    """In Kafka's order, in which the halves of an id are signed numbers."""
    return tuple(sorted(directories, key=lambda directory: _HALVES.unpack(directory.bytes)))
