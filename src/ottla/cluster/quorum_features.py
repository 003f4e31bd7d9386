"""PURE. Changes of feature levels in a cluster with a quorum of controllers: `metadata.version` is one of them.

A level is finalized only if every registered node supports it. Source: KIP-584, KIP-778; Kafka 4.3,
`FeatureControlManager`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.commands import SetFeatures
from ottla.cluster.features import METADATA_VERSION, FeatureUpdate, UpgradeType
from ottla.cluster.image import MetadataImage
from ottla.cluster.metadata_log.levels import RANGES, loses_records, missing_dependency
from ottla.errors import ApiError, ErrorCode


class Node(NamedTuple):
    """A registered node and the levels that it supports."""

    name: str
    """As in "broker 3"."""
    features: Mapping[str, tuple[int, int]]


def plan_quorum_features(image: MetadataImage, updates: Sequence[FeatureUpdate], nodes: Iterable[Node]) -> SetFeatures:
    """All the updates, or none: raises `ApiError` INVALID_UPDATE_VERSION."""
    levels = dict(image.features)
    known = list(nodes)
    for update in updates:
        problem = _problem(update, image.features.get(update.feature, 0), known)
        if problem is not None:
            raise _refused(update, problem)
        levels[update.feature] = update.level
    levels = {feature: level for feature, level in levels.items() if level > 0}
    for feature, level in levels.items():
        missing = missing_dependency(feature, level, levels)
        if missing is not None:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{missing[0].upper()}{missing[1:]}.")
    return SetFeatures(levels)


def check_kraft_version(update: FeatureUpdate, current: int) -> None:
    """Raise `ApiError` INVALID_UPDATE_VERSION unless the quorum's own level may become that of the update.

    It is no level of the image: the voters keep it, and agree to it (KIP-853).
    """
    problem = _problem(update, current, ())
    if problem is None and update.level < current:
        problem = "Can't downgrade the version of this feature."
    if problem is not None:
        raise _refused(update, problem)


def _refused(update: FeatureUpdate, problem: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.feature}. {problem}",
    )


def _problem(update: FeatureUpdate, current: int, nodes: Sequence[Node]) -> str | None:
    feature, level = update.feature, update.level
    supported = RANGES.get(feature)
    if supported is None:
        return "The controller does not support the given feature."
    if update.upgrade_type not in set(UpgradeType):
        return f"{update.upgrade_type} is no type of upgrade."
    if not supported[0] <= level <= supported[1]:
        return f"Local controller only supports versions {supported[0]}-{supported[1]}"
    for node in nodes:
        low, high = node.features.get(feature, (0, 0))
        if level and not low <= level <= high:
            reach = (
                f"only supports versions {low}-{high}" if feature in node.features else "does not support this feature"
            )
            return f"{node.name[0].upper()}{node.name[1:]} {reach}."
    if level < current:
        return _downgrade_problem(update, current)
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _downgrade_problem(update: FeatureUpdate, current: int) -> str | None:
    if update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.feature != METADATA_VERSION or not loses_records(current, update.level):
        return None
    if update.upgrade_type == UpgradeType.SAFE_DOWNGRADE:
        return "Refusing to perform the requested downgrade because it might delete metadata information."
    return "Unsafe metadata downgrade is not supported in this version."
