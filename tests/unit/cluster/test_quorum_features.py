"""Feature levels of a quorum: which nodes have to support them, and which can be lowered."""

import pytest
from tests.unit.cluster.images import cluster

from ottla.cluster.commands import SetFeatures
from ottla.cluster.features import ONLY_LEVELS, FeatureUpdate, UpgradeType
from ottla.cluster.metadata_log.levels import HIGHEST, NAMES, RANGES, metadata_version_of
from ottla.cluster.quorum_features import Node, check_kraft_version, plan_quorum_features
from ottla.errors import ApiError, ErrorCode, InvalidConfig

MV, ELR, TV = "metadata.version", "eligible.leader.replicas.version", "transaction.version"
UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
NEW = Node("broker 1", RANGES)
OLD = Node("broker 2", {**RANGES, MV: (7, 29)})


def _planned(level: int, *updates: FeatureUpdate, nodes: tuple[Node, ...] = (NEW,)) -> SetFeatures:
    return plan_quorum_features(cluster(1)._replace(features={MV: level}), updates, nodes)


def test_levels_are_raised_where_every_node_supports_them() -> None:
    assert _planned(25, FeatureUpdate(MV, 30, UP), FeatureUpdate(TV, 2, UP)) == SetFeatures({MV: 30, TV: 2})
    assert _planned(25, FeatureUpdate(MV, 25, UP)) == SetFeatures({MV: 25})
    # 4.3 added records, the levels between 4.0-IV1 and it did not
    assert _planned(29, FeatureUpdate(MV, 25, SAFE)) == SetFeatures({MV: 25})


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(MV, 30, UP), "Broker 2 only supports versions 7-29"),
        (FeatureUpdate(MV, 31, UP), "Local controller only supports versions 7-30"),
        (FeatureUpdate(MV, 6, UNSAFE), "Local controller only supports"),
        (FeatureUpdate("x.version", 1, UP), "does not support the given feature"),
        (FeatureUpdate(TV, 1, 0), "0 is no type of upgrade"),
        (FeatureUpdate(TV, 1, SAFE), "downgrade to a newer version"),
        (FeatureUpdate(MV, 22, UP), "without setting the upgrade type"),
        (FeatureUpdate(MV, 22, SAFE), "might delete metadata"),
        (FeatureUpdate(MV, 22, UNSAFE), "not supported in this version"),
    ],
)
def test_what_cannot_be_is_refused(update: FeatureUpdate, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as refusal:
        _planned(24, FeatureUpdate("share.version", 1, UP), update, nodes=(NEW, OLD))
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate("kraft.version", 2, UP), "Local controller only supports versions 0-1"),
        (FeatureUpdate("kraft.version", 0, UP), "without setting the upgrade type"),
        (FeatureUpdate("kraft.version", 0, SAFE), "Can't downgrade the version of this feature"),
    ],
)
def test_the_quorums_own_level_is_only_raised(update: FeatureUpdate, reason: str) -> None:
    check_kraft_version(FeatureUpdate("kraft.version", 1, UP), 0)
    check_kraft_version(FeatureUpdate("kraft.version", 1, UP), 1)
    with pytest.raises(ApiError, match=reason) as refusal:
        check_kraft_version(update, 1)
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_eligible_replicas_need_a_level() -> None:
    with pytest.raises(ApiError, match=r"needs metadata.version at 23 \(4.0-IV1\)"):
        _planned(22, FeatureUpdate(ELR, 1, UP))
    both = FeatureUpdate(ELR, 1, UP), FeatureUpdate(MV, 23, UP)
    assert _planned(22, *both) == SetFeatures({MV: 23, ELR: 1})


def test_a_broker_that_is_alone_is_at_the_newest_level() -> None:
    assert ONLY_LEVELS == {MV: HIGHEST}


def test_levels_have_names() -> None:
    assert (NAMES[7], NAMES[21], NAMES[30], len(NAMES)) == ("3.3-IV3", "3.9-IV0", "4.3-IV0", 24)
    assert [metadata_version_of(text) for text in ("3.7", "4.0-IV1", "4.3")] == [19, 23, 30]
    with pytest.raises(InvalidConfig, match=r"such as 4\.3 or 4\.3-IV0"):
        metadata_version_of("2.8")
