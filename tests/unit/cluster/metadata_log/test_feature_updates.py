"""Feature levels of a quorum: who has to support them, which can be lowered, and how a cluster begins."""

import pytest
from tests.unit.cluster.metadata_log.framed import broker, state_of

from ottla.cluster.commands import SetConfigs, SetFeatures
from ottla.cluster.features import FeatureUpdate, UpgradeType
from ottla.cluster.image import ResourceType
from ottla.cluster.metadata_log.feature_updates import FeatureChanges, activation_records, plan_quorum_features
from ottla.cluster.metadata_log.levels import NAMES, RANGES, initial_features, metadata_version_of
from ottla.cluster.metadata_log.state import ClusterState
from ottla.errors import ApiError, ErrorCode, InvalidConfig
from ottla.protocol import metadata_records as records

MV, ELR, TV = "metadata.version", "eligible.leader.replicas.version", "transaction.version"
UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
_ALL = [
    records.FeatureRange(name=name, min_supported_version=lowest, max_supported_version=highest)
    for name, (lowest, highest) in RANGES.items()
]
_OLDER = [each for each in _ALL if each.name != MV]
_OLDER.append(records.FeatureRange(name=MV, min_supported_version=7, max_supported_version=29))


def _state(level: int, *brokers: records.RegisterBrokerRecord, **configs: str) -> ClusterState:
    settings = [
        records.ConfigRecord(resource_type=4, resource_name=name.strip("_"), name="min.insync.replicas", value=value)
        for name, value in configs.items()
    ]
    return state_of([records.FeatureLevelRecord(name=MV, feature_level=level), *settings, *brokers])


def _planned(state: ClusterState, *updates: FeatureUpdate, kraft_version: int = 1) -> FeatureChanges:
    return plan_quorum_features(state, updates, kraft_version=kraft_version, min_insync=1)


def test_levels_are_raised_where_every_node_supports_them() -> None:
    state = _state(25, broker(1, features=_ALL))
    assert _planned(state, FeatureUpdate(MV, 30, UP), FeatureUpdate(TV, 2, UP)) == (
        [SetFeatures({MV: 30, TV: 2})],
        None,
    )
    assert _planned(state, FeatureUpdate(MV, 25, UP)) == ([], None)
    assert _planned(state, FeatureUpdate("kraft.version", 1, UP), kraft_version=0) == ([], 1)
    # 4.3 added records, the levels between 4.0-IV1 and it did not
    assert _planned(_state(29), FeatureUpdate(MV, 25, SAFE)).commands == [SetFeatures({MV: 25})]


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate(MV, 30, UP), "broker 2 supports the levels from 7 to 29"),
        (FeatureUpdate(MV, 31, UP), "this controller supports the levels from 7 to 30"),
        (FeatureUpdate(MV, 6, UNSAFE), "this controller supports"),
        (FeatureUpdate("x.version", 1, UP), "this controller does not have this feature"),
        (FeatureUpdate("x.version", -1, UP), "begin at 0"),
        (FeatureUpdate(TV, 1, 0), "0 is no type of upgrade"),
        (FeatureUpdate(TV, 1, SAFE), "which no downgrade raises"),
        (FeatureUpdate(MV, 22, UP), "the upgrade type has to be"),
        (FeatureUpdate(MV, 22, SAFE), "would be lost"),
        (FeatureUpdate(MV, 22, UNSAFE), "would be lost"),
        (FeatureUpdate("kraft.version", 0, UNSAFE), "never lowered"),
    ],
)
def test_what_cannot_be_is_refused(update: FeatureUpdate, reason: str) -> None:
    state = _state(24, broker(1, features=_ALL), broker(2, features=_OLDER, fenced=True))
    with pytest.raises(ApiError, match=reason) as refusal:
        _planned(state, FeatureUpdate("share.version", 1, UP), update)
    assert refusal.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_eligible_replicas_need_a_level_and_one_setting_for_all_brokers() -> None:
    wanted = FeatureUpdate(ELR, 1, UP)
    with pytest.raises(ApiError, match=r"needs metadata.version at 23 \(4.0-IV1\)"):
        _planned(_state(22), wanted)
    assert _planned(_state(22), wanted, FeatureUpdate(MV, 23, UP)).commands[0] == SetFeatures({MV: 23, ELR: 1})
    assert _planned(_state(23, _1="2"), wanted).commands[1:] == [
        SetConfigs(ResourceType.BROKER, "", {"min.insync.replicas": "1"}),
        SetConfigs(ResourceType.BROKER, "1", {}),
    ]
    assert _planned(_state(23, _="2"), wanted).commands[1:] == []


def test_a_new_cluster_begins_with_the_levels_of_its_metadata_version() -> None:
    assert initial_features(7) == {MV: 7}
    assert initial_features(24) == {MV: 24, "group.version": 1, TV: 2}
    levels = initial_features(30).items()
    bootstrap = [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]
    state = ClusterState("cluster")
    state.replay_all(activation_records(state, bootstrap, min_insync=2))
    assert state.image().features == initial_features(30)
    assert state.image().configs == {(ResourceType.BROKER, ""): {"min.insync.replicas": "2"}}
    assert activation_records(state, bootstrap, min_insync=2) == []
    state.take(records.BeginTransactionRecord())
    state.replay_all(activation_records(state, bootstrap, min_insync=2))
    assert not state.in_transaction
    oldest = ClusterState("cluster")
    assert len(activation_records(oldest, [records.FeatureLevelRecord(name=MV, feature_level=7)], min_insync=1)) == 1


def test_levels_have_names() -> None:
    assert (NAMES[7], NAMES[21], NAMES[30], len(NAMES)) == ("3.3-IV3", "3.9-IV0", "4.3-IV0", 24)
    assert [metadata_version_of(text) for text in ("3.7", "4.0-IV1", "4.3")] == [19, 23, 30]
    with pytest.raises(InvalidConfig, match=r"such as 4\.3 or 4\.3-IV0"):
        metadata_version_of("2.8")
