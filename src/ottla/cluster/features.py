"""PURE. Feature levels of the cluster (KIP-584): what is finalized decides which generation of a protocol is spoken.

    transaction.version   0 as it was; 1 records with tagged fields; 2 an epoch for every transaction (KIP-890)
    group.version         1 the consumer protocol of KIP-848
    share.version         1 share groups (KIP-932)
    streams.version       1 streams groups (KIP-1071)

A level of 0 is that of a feature that is not there. `metadata.version` and its like belong to KRaft: a broker that is
alone, and otherwise answers as a KRaft broker does, has the first of them at one level; in a cluster with ZooKeeper
there is none, as in Kafka.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.cluster.commands import SetFeatures
from ottla.cluster.image import MetadataImage
from ottla.errors import ApiError, ErrorCode

SUPPORTED: Final[Mapping[str, int]] = MappingProxyType(
    {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
)
"""The highest level of each; all begin at 0."""
METADATA_VERSION: Final = "metadata.version"
ONLY_LEVELS: Final[Mapping[str, int]] = MappingProxyType({METADATA_VERSION: 30})
"""What a broker that is alone has besides, at the only level that it can have: 30 is 4.3-IV0."""


class UpgradeType(IntEnum):
    """What the sender of a change allows, as numbered in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A requested change of one feature's level (KIP-584)."""

    feature: str
    level: int
    upgrade_type: int
    """An `UpgradeType`, or whatever else was sent."""


def plan_features(
    image: MetadataImage, updates: Sequence[FeatureUpdate], *, only_levels: Mapping[str, int] = MappingProxyType({})
) -> SetFeatures:
    """All the updates, or none: raises `ApiError` INVALID_UPDATE_VERSION. Of two for one feature the last counts.

    `only_levels` are of features that cannot be changed.
    """
    levels = dict(image.features)
    for update in updates:
        only = only_levels.get(update.feature)
        if only is None:
            problem = _problem(update, image.features.get(update.feature, 0))
        else:
            problem = None if update.level == only else f"it is at {only}, the only level that is supported"
        if problem is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{update.feature} cannot be set to {update.level}: {problem}",
            )
        if only is None:
            levels[update.feature] = update.level
    return SetFeatures({feature: level for feature, level in levels.items() if level > 0})


def _problem(update: FeatureUpdate, current: int) -> str | None:
    highest = SUPPORTED.get(update.feature)
    if highest is None:
        return "there is no such feature here"
    if update.upgrade_type not in set(UpgradeType):
        return f"{update.upgrade_type} is no type of upgrade"
    if not 0 <= update.level <= highest:
        return f"levels from 0 to {highest} are supported"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return f"it is at {current}, and to lower it the upgrade type has to be a safe or unsafe downgrade"
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"it is at {current}, which no downgrade raises"
    return None
