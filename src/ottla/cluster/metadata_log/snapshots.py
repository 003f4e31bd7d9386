"""PURE. The records of a whole state, as genuine Kafka writes them to a snapshot (KIP-630).

In its order: levels (`metadata.version` first), brokers, controllers, topics, settings, quotas, producer ids, access
rules, credentials, delegation tokens. Control records around them, `kraft.version` among those, are not metadata.
Source: Kafka 4.3, `MetadataImage.write` and what it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import (
    CONTROLLER_REGISTRATIONS_SINCE,
    DELEGATION_TOKENS_SINCE,
    SCRAM_SINCE,
)
from ottla.cluster.metadata_log.partitions import PartitionState, partition_record
from ottla.cluster.metadata_log.registrations import broker_record, controller_record
from ottla.cluster.metadata_log.settings import MECHANISM_CODES, InexpressibleChange, Resource, setting_record
from ottla.protocol import metadata_records as records

if TYPE_CHECKING:
    from ottla.cluster.metadata_log.state import ClusterState
    from ottla.protocol.schema import Message

ItemT = TypeVar("ItemT")
_Wanted = Callable[[Resource, str], bool]


def snapshot_records(state: ClusterState) -> Iterator[bytes]:
    """The records of the state as it is now, made one by one as they are taken; it may change meanwhile.

    Raises `InexpressibleChange` within a transaction, whose begin the log behind a snapshot would miss. Taking one
    raises it for settings that no record can have.
    """
    if state.in_transaction:
        raise InexpressibleChange("no snapshot can stand for the metadata log in the middle of a transaction")
    level = state.metadata_version
    parts: list[Iterable[Message]] = [
        _features(dict(state.features)),
        _each(tuple(state.brokers.values()), lambda broker: broker_record(broker, level)),
    ]
    if level >= CONTROLLER_REGISTRATIONS_SINCE:
        parts.append(_each(tuple(state.controllers.values()), controller_record))
    topics = [(topic.topic_id, topic.name, tuple(topic.partitions.values())) for topic in state.topics.states.values()]
    parts.append(_topics(topics, level))
    configs = {resource: dict(settings) for resource, settings in state.configs.items()}
    parts.append(_settings(configs, lambda resource, _: resource[0] > 0))
    parts.append(tuple(state.foreign.values()))
    parts.append(_settings(configs, lambda resource, key: resource[0] < 0 and key not in MECHANISM_CODES))
    if state.next_producer_id is not None:
        parts.append([records.ProducerIdsRecord(broker_id=-1, next_producer_id=state.next_producer_id)])
    parts.append(tuple(rule for rules in state.acls.values() for rule in rules.values()))
    if level >= SCRAM_SINCE:
        parts.append(_settings(configs, lambda _, key: key in MECHANISM_CODES))
    if level >= DELEGATION_TOKENS_SINCE:
        parts.append(tuple(state.tokens.values()))
    return (framed(record, level) for record in chain.from_iterable(parts))


def _each(items: Sequence[ItemT], record: Callable[[ItemT], Message]) -> Iterator[Message]:
    return (record(item) for item in items)


def _features(levels: Mapping[str, int]) -> Iterator[Message]:
    if METADATA_VERSION in levels:
        yield records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])
    for feature, level in levels.items():
        if feature != METADATA_VERSION:
            yield records.FeatureLevelRecord(name=feature, feature_level=level)


def _topics(topics: Sequence[tuple[UUID, str, Sequence[PartitionState]]], level: int) -> Iterator[Message]:
    for topic_id, name, partitions in topics:
        yield records.TopicRecord(name=name, topic_id=topic_id)
        for partition in partitions:
            yield partition_record(topic_id, partition, level)


def _settings(
    configs: Mapping[Resource, Mapping[str, str]], wanted: Callable[[Resource, str], bool]
) -> Iterator[Message]:
    for resource, settings in configs.items():
        for key, value in settings.items():
            if wanted(resource, key):
                yield setting_record(resource, key, value)
