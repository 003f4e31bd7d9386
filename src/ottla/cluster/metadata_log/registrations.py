"""PURE. Brokers and controllers as they have registered with the quorum.

A registration outlives its broker: a broker that is gone is fenced, and stays until it is unregistered.
Source: KIP-631, KIP-858 (directories), KIP-919 (controllers); Kafka 4.3, `BrokerRegistration`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import BrokerImage
from ottla.cluster.metadata_log.partitions import LOST, MIGRATING, UNASSIGNED
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId
from ottla.protocol.metadata_records import Endpoint, FeatureRange, RegisterBrokerRecord, RegisterControllerRecord

if TYPE_CHECKING:
    from ottla.protocol.metadata_records import BrokerRegistrationChangeRecord

SECURITY_PROTOCOLS: Final[Mapping[int, str]] = MappingProxyType(
    {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
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
        tuple(sorted(record.log_dirs)),
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
        directories=tuple(sorted(record.log_dirs)) or before.directories,
        cordoned=before.cordoned if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
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
