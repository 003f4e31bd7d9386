"""Feature levels: which changes genuine Kafka takes, and which it refuses."""

import pytest

from ottla.cluster.features import ONLY_LEVELS, SUPPORTED, FeatureUpdate, UpgradeType, plan_features
from ottla.cluster.image import INITIAL_FEATURES, MetadataImage, empty_image
from ottla.errors import ApiError, ErrorCode

UP, DOWN, UNSAFE = UpgradeType
TV = "transaction.version"


def image(**levels: int) -> MetadataImage:
    return empty_image("c")._replace(features={f"{name}.version": level for name, level in levels.items()})


def test_a_new_cluster_has_all_that_is_supported() -> None:
    assert INITIAL_FEATURES == SUPPORTED


@pytest.mark.parametrize("downgrade", [DOWN, UNSAFE])
def test_levels_fall_and_rise(downgrade: UpgradeType) -> None:
    lowered = plan_features(image(transaction=2, group=1), [FeatureUpdate(TV, 1, downgrade)])
    assert lowered.levels == {TV: 1, "group.version": 1}
    assert plan_features(image(transaction=1), [FeatureUpdate(TV, 0, downgrade)]).levels == {}
    assert plan_features(image(), [FeatureUpdate(TV, 2, UP)]).levels == {TV: 2}


@pytest.mark.parametrize("upgrade_type", [UP, DOWN, UNSAFE])
def test_a_level_may_be_set_to_what_it_is(upgrade_type: UpgradeType) -> None:
    assert plan_features(image(transaction=2), [FeatureUpdate(TV, 2, upgrade_type)]).levels == {TV: 2}


def test_a_level_that_is_the_only_one_stays() -> None:
    asked = [FeatureUpdate("metadata.version", ONLY_LEVELS["metadata.version"], UP), FeatureUpdate(TV, 1, DOWN)]
    assert plan_features(image(transaction=2), asked, only_levels=ONLY_LEVELS).levels == {TV: 1}
    for level, upgrade_type in ((29, DOWN), (31, UP), (0, UNSAFE)):
        with pytest.raises(ApiError, match=r"metadata.version cannot be set to \d+: it is at 30, the only level"):
            plan_features(image(), [FeatureUpdate("metadata.version", level, upgrade_type)], only_levels=ONLY_LEVELS)


def test_of_two_updates_the_last_counts() -> None:
    updates = [FeatureUpdate(TV, 2, UP), FeatureUpdate(TV, 1, UP)]
    assert plan_features(image(), updates).levels == {TV: 1}


@pytest.mark.parametrize(
    "update",
    [
        FeatureUpdate(TV, 0, UP),
        FeatureUpdate(TV, 2, DOWN),
        FeatureUpdate(TV, 2, UNSAFE),
        FeatureUpdate(TV, 3, UP),
        FeatureUpdate(TV, -1, DOWN),
        FeatureUpdate(TV, 2, 0),
        FeatureUpdate(TV, 2, 9),
        FeatureUpdate("nonsense", 0, DOWN),
        FeatureUpdate("nonsense", 1, UP),
        FeatureUpdate("metadata.version", 1, UP),
    ],
    ids=repr,
)
def test_what_is_refused_takes_the_others_along(update: FeatureUpdate) -> None:
    with pytest.raises(ApiError) as caught:
        plan_features(image(transaction=1), [FeatureUpdate("group.version", 1, UP), update])
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert update.feature in str(caught.value)
