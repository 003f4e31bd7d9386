"""PURE. Changes of feature levels where a quorum of controllers keeps the metadata: UpdateFeatures (KIP-584, KIP-778).

A level is raised once every node supports it, brokers that are fenced included. `metadata.version` is lowered only
where no record of the higher level would have to be forgotten; Kafka has not implemented the unsafe way either.
`kraft.version` is not in the metadata log: the voters keep it, and it is never lowered (KIP-853).
Source: Kafka 4.3, `FeatureControlManager`, `ConfigurationControlManager` and `ActivationRecordsGenerator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cluster.commands import Command, SetConfigs, SetFeatures
from ottla.cluster.features import FeatureUpdate, UpgradeType
from ottla.cluster.image import CLUSTER_DEFAULT, ResourceType
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    NAMES,
    RANGES,
    TRANSACTIONS_SINCE,
    loses_records,
    missing_dependency,
)
from ottla.cluster.metadata_log.records import records_for
from ottla.cluster.metadata_log.settings import Resource
from ottla.cluster.metadata_log.state import ClusterState
from ottla.errors import ApiError, ErrorCode
from ottla.protocol import metadata_records as records

if TYPE_CHECKING:
    from ottla.protocol.schema import Message

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
_NOT_THERE: Final = (0, 0)


class FeatureChanges(NamedTuple):
    """What an UpdateFeatures changes."""

    commands: list[Command]
    """Empty if the metadata log stays as it is."""
    kraft_version: int | None
    """The level that the voters shall have from now on; None if it stays."""


def plan_quorum_features(
    state: ClusterState, updates: Sequence[FeatureUpdate], *, kraft_version: int, min_insync: int
) -> FeatureChanges:
    """All the updates, or none. Of two for one feature the last counts.

    `kraft_version` is the voters' level, `min_insync` the value of `min.insync.replicas` in the settings of the
    controller's file. Raises `ApiError` INVALID_UPDATE_VERSION.
    """
    wanted = {update.feature: update for update in updates}
    levels = dict(state.features)
    levels.update((feature, update.level) for feature, update in wanted.items() if feature != KRAFT_VERSION)
    raised_to = None
    for feature, update in wanted.items():
        current = kraft_version if feature == KRAFT_VERSION else state.features.get(feature, 0)
        problem = _problem(state, update, current) or missing_dependency(feature, update.level, levels)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{feature} cannot be set to {update.level}: {problem}")
        if feature == KRAFT_VERSION and update.level != current:
            raised_to = update.level
    levels = {feature: level for feature, level in levels.items() if level > 0}
    if levels == state.features:
        return FeatureChanges([], raised_to)
    commands: list[Command] = [SetFeatures(levels)]
    if levels.get(ELIGIBLE_LEADER_REPLICAS) and not state.features.get(ELIGIBLE_LEADER_REPLICAS):
        commands += settings_of_eligible_replicas(state.configs, min_insync)
    return FeatureChanges(commands, raised_to)


def settings_of_eligible_replicas(configs: Mapping[Resource, Mapping[str, str]], min_insync: int) -> list[Command]:
    """The settings that a cluster needs for eligible leader replicas: one `min.insync.replicas` for all brokers."""
    changes: list[Command] = []
    for resource, settings in {(ResourceType.BROKER, CLUSTER_DEFAULT): {}, **configs}.items():
        kind, name = resource
        if kind is not ResourceType.BROKER or (MIN_INSYNC_REPLICAS in settings) == (name == CLUSTER_DEFAULT):
            continue
        after = {key: value for key, value in settings.items() if key != MIN_INSYNC_REPLICAS}
        if name == CLUSTER_DEFAULT:
            after[MIN_INSYNC_REPLICAS] = str(min_insync)
        changes.append(SetConfigs(kind, name, after))
    return changes


def activation_records(state: ClusterState, bootstrap: Sequence[Message], *, min_insync: int) -> list[bytes]:
    """The records with which a controller begins its term; to be written at once.

    In an empty log those are the `bootstrap` records of the node's format; else the end of a transaction that the
    controller before has left behind. `min_insync` as in `plan_quorum_features`.
    """
    if state.metadata_version or state.in_transaction:
        if not state.in_transaction:
            return []
        return [framed(records.AbortTransactionRecord(reason="another controller has taken over"), TRANSACTIONS_SINCE)]
    begun = ClusterState()
    for record in bootstrap:
        begun.take(record)
    level = begun.metadata_version
    found = [framed(record, level) for record in bootstrap]
    if begun.features.get(ELIGIBLE_LEADER_REPLICAS):
        found += records_for(settings_of_eligible_replicas(begun.configs, min_insync), begun)
    if level < TRANSACTIONS_SINCE:
        return found
    begin = framed(records.BeginTransactionRecord(name="Bootstrap records"), level)
    return [begin, *found, framed(records.EndTransactionRecord(), level)]


def _problem(state: ClusterState, update: FeatureUpdate, current: int) -> str | None:
    if update.upgrade_type not in set(UpgradeType):
        return f"{update.upgrade_type} is no type of upgrade"
    if update.level < 0:
        return "levels begin at 0"
    unsupported = next(_unsupporting(state, update), None)
    if unsupported is not None:
        return unsupported
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"it is at {current}, which no downgrade raises"
    if update.level >= current:
        return None
    if update.upgrade_type == UpgradeType.UPGRADE:
        return f"it is at {current}, and to lower it the upgrade type has to be a safe or unsafe downgrade"
    if update.feature == KRAFT_VERSION:
        return f"it is at {current}, and is never lowered"
    if update.feature == METADATA_VERSION and loses_records(current, update.level):
        return (
            f"it is at {current} ({NAMES[current]}), and records that are written at that level, and unknown at "
            f"{NAMES[update.level]}, would be lost"
        )
    return None


def _unsupporting(state: ClusterState, update: FeatureUpdate) -> Iterator[str]:
    """The nodes that do not support a level, each as a sentence."""
    nodes = [("this controller", RANGES)]
    nodes += [(f"broker {broker.broker_id}", broker.features) for broker in state.brokers.values()]
    nodes += [(f"controller {number}", controller.features) for number, controller in state.controllers.items()]
    for node, ranges in nodes:
        lowest, highest = ranges.get(update.feature, _NOT_THERE)
        if not lowest <= update.level <= highest:
            yield (
                f"{node} does not have this feature"
                if highest == 0
                else f"{node} supports the levels from {lowest} to {highest}"
            )
