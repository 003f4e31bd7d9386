"""Commands and their records change an image alike, and a snapshot has all of it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.metadata_log.framed import DISK, TOPIC, broker, change, framed, partition, state_of, topic

from ottla.cluster.broker_registrations import changed_directories, fencing, stopping
from ottla.cluster.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    RemoveBroker,
    SetConfigs,
    SetFeatures,
    SetPartitions,
    apply,
)
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.cluster.metadata_log import framing
from ottla.cluster.metadata_log.levels import NAMES
from ottla.cluster.metadata_log.partitions import MIGRATING, UNASSIGNED, PartitionState
from ottla.cluster.metadata_log.records import each_record
from ottla.cluster.metadata_log.settings import InexpressibleChange
from ottla.cluster.metadata_log.snapshots import snapshot_records
from ottla.cluster.metadata_log.state import ClusterState
from ottla.cluster.replica_directories import plan_assignment
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.protocol import metadata_records as records
from ottla.protocol.metadata_records import decode_record
from ottla.protocol.schema import Message

T = TopicName("t")
_BROKERS = [BrokerId(number) for number in (1, 2, 3, 4)]
_RANGE = records.FeatureRange(name="share.version", min_supported_version=0, max_supported_version=1)
_LEVEL = records.FeatureLevelRecord(name="metadata.version", feature_level=30)
_RESOURCES = [
    (ResourceType.TOPIC, "u", ["retention.ms", "cleanup.policy"], ["1", "2", "x"]),
    (ResourceType.BROKER, "", ["log.retention.ms", "y"], ["1", ""]),
    (ResourceType.GROUP, "g/\u00e9", ["a"], ["1"]),
    (ResourceType.CLIENT_METRICS, "m", ["metrics"], ["", "x,y"]),
    (ResourceType.USER, "alice", ["producer_byte_rate", "consumer_byte_rate"], ["1", "2048"]),
    (ResourceType.USER, "alice", ["SCRAM-SHA-256"], ["salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096"]),
    (ResourceType.USER, "", ["request_percentage"], ["0.5", "50.0"]),
    (ResourceType.CLIENT, "c", ["controller_mutation_rate"], ["7.0"]),
    (ResourceType.USER_CLIENT, "a%2Fb/clients/<default>", ["producer_byte_rate"], ["1", "9"]),
    (ResourceType.IP, "::1", ["connection_creation_rate"], ["5"]),
]


def _decoded(values: Sequence[bytes]) -> list[Message]:
    return [decode_record(value)[0] for value in values]


def _records_for(commands: Sequence[Command], state: ClusterState) -> list[bytes]:
    return list(each_record(commands, state))


def _base(level: int = 30) -> ClusterState:
    return state_of(
        [
            records.FeatureLevelRecord(name="metadata.version", feature_level=level),
            *(broker(number) for number in _BROKERS),
        ]
    )


@st.composite
def _partitions(draw: st.DrawFn, number: int, before: PartitionImage | None) -> PartitionImage:
    """A partition that can follow another one: any facts that do not contradict each other."""
    replicas = draw(st.lists(st.sampled_from(_BROKERS), min_size=1, unique=True))
    split = draw(st.integers(0, len(replicas)))
    isr, others = replicas[:split], replicas[split:]
    bumps = draw(st.integers(0, 2))
    leader = draw(st.sampled_from([*replicas, NO_LEADER]))
    if before is not None and bumps == 0:
        leader = before.leader
    steps = draw(st.integers(max(1, bumps), 3))
    others = [replica for replica in others if replica != leader]
    departed = tuple(draw(st.permutations(others))[: draw(st.integers(0, len(others)))])
    previous = [replica for replica in replicas if replica != leader and replica not in departed]
    begins_anew = leader != NO_LEADER and draw(st.booleans())
    eligible = draw(st.integers(0, len(departed)))
    last_known = NO_LEADER if begins_anew else draw(st.sampled_from([*previous, NO_LEADER]))
    if leader == NO_LEADER and not isr:  # the last leader is eligible, or the first of the others
        last_known = draw(st.sampled_from(departed[: eligible + 1])) if departed else NO_LEADER
    return PartitionImage(
        PartitionId(number),
        leader,
        LeaderEpoch(bumps if before is None else before.leader_epoch + bumps),
        tuple(replicas),
        tuple(isr),
        steps if before is None else before.partition_epoch + steps,
        tuple(draw(st.lists(st.sampled_from(replicas), unique=True))),
        tuple(draw(st.lists(st.sampled_from(replicas), unique=True))),
        last_known,
        departed,
        eligible,
        begins_anew,
    )


@st.composite
def _commands(draw: st.DrawFn, image: MetadataImage) -> list[Command]:
    """A sequence of commands that fit the image, each one as the ones before have left it."""
    made: list[Command] = []
    for _ in range(draw(st.integers(1, 4))):
        names = sorted(image.topics)
        kinds = ["create", "configs", "features", *(["delete", "change", "change"] if names else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "create":
            name = draw(st.sampled_from([TopicName(f"t{nth}") for nth in range(4)]))
            if name in names:
                continue
            made_of = tuple(draw(_partitions(number, None)) for number in range(draw(st.integers(1, 3))))
            topic_id = TopicId(draw(st.uuids()))
            command: Command = CreateTopic(TopicImage(name, topic_id, made_of), draw(_settings(["a", "b"], ["1", "2"])))
        elif kind == "delete":
            command = DeleteTopic(draw(st.sampled_from(names)))
        elif kind == "configs":
            resource_type, resource, keys, values = draw(st.sampled_from(_RESOURCES))
            command = SetConfigs(resource_type, resource, draw(_settings(keys, values)))
        elif kind == "features":
            levels = draw(st.dictionaries(st.sampled_from(["share.version", "group.version"]), st.just(1)))
            command = SetFeatures({"metadata.version": draw(st.sampled_from([30, 30, 29])), **levels})
        else:
            known = image.topics[draw(st.sampled_from(names))]
            numbers = draw(st.lists(st.integers(0, len(known.partitions) - 1), unique=True))
            changes = [draw(_partitions(number, known.partitions[number])) for number in numbers]
            if draw(st.booleans()):
                changes.append(draw(_partitions(len(known.partitions), None)))
            command = SetPartitions(known.name, tuple(changes))
        made.append(command)
        image = apply(image, [command])
    return made


def _settings(keys: Sequence[str], values: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(list(keys)), st.sampled_from(list(values)))


def _recorded(state: ClusterState) -> dict[UUID, dict[int, PartitionState]]:
    return {topic_id: found.partitions for topic_id, found in state.topics.states.items()}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_records_of_commands_make_the_image_that_the_commands_make(data: st.DataObject) -> None:
    state = _base()
    image = state.image()
    for _ in range(data.draw(st.integers(1, 3))):
        commands = data.draw(_commands(image))
        expected = apply(image, commands)
        state.replay_all(_records_for(commands, state))
        image = state.image()
        epoch = expected.features_epoch if expected.features == state.features else None
        assert image._replace(features_epoch=epoch or 0) == expected._replace(features_epoch=epoch or 0)

    copy = ClusterState("cluster", like=image)
    copy.replay_all(snapshot_records(state))
    snapshot = copy.image()
    assert snapshot._replace(features_epoch=image.features_epoch) == image
    assert snapshot.topics is image.topics or not image.topics
    assert _recorded(copy) == _recorded(state)


def test_a_change_names_what_has_changed_and_nothing_else() -> None:
    state = state_of([_LEVEL, broker(1), broker(2), broker(3, log_dirs=[DISK, TOPIC]), topic(), partition(0, 1, 2)])
    before = state.image().topics[T].partitions[0]
    shrunk = before._replace(isr=(BrokerId(1),), partition_epoch=10)
    assert _decoded(_records_for([SetPartitions(T, (shrunk,))], state)) == [change(0, isr=[1])]
    moved = before._replace(
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        adding=(BrokerId(3),),
        leader_epoch=LeaderEpoch(6),
        partition_epoch=10,
    )
    assert _decoded(_records_for([SetPartitions(T, (moved,))], state)) == [
        change(0, leader=1, replicas=[1, 2, 3], adding_replicas=[3], directories=[DISK, DISK, UNASSIGNED])
    ]
    assert _records_for([SetPartitions(T, (before,))], state) == []
    jumped = before._replace(leader_epoch=LeaderEpoch(500))
    with pytest.raises(InexpressibleChange, match="leader epoch 5 to 500"):
        _records_for([SetPartitions(T, (jumped,))], state)


def test_a_cluster_before_3_6_has_a_new_leader_epoch_for_a_smaller_in_sync_set() -> None:
    def shrunk(level: int) -> Message:
        state = _base(level)
        state.replay_all(framed(topic(), partition(0, 1, 2)))
        before = state.image().topics[T].partitions[0]
        return _decoded(
            _records_for([SetPartitions(T, (before._replace(isr=(BrokerId(1),), partition_epoch=10),))], state)
        )[0]

    assert shrunk(11) == change(0, isr=[1], leader=1)
    assert shrunk(12) == change(0, isr=[1])


def test_a_leader_that_kafka_elected_uncleanly_recovers_until_another_replica_is_in_sync() -> None:
    state = state_of([_LEVEL, broker(1), topic(), partition(0, 1, 2, isr=[1], leader_recovery_state=1)])

    def replayed(**fields: Any) -> int:
        before = state.image().topics[T].partitions[0]
        state.replay_all(_records_for([SetPartitions(T, (before._replace(**fields),))], state))
        return state.topics.states[TOPIC].partitions[0].recovery

    assert replayed(adding=(2,), partition_epoch=10) == 1
    assert replayed(adding=(), isr=(1, 2), partition_epoch=11) == 0


def test_levels_have_the_records_that_genuine_kafka_writes_at_them() -> None:
    token = records.RemoveDelegationTokenRecord(token_id="x")
    before = state_of([_LEVEL, broker(1, log_dirs=[DISK, TOPIC])]).brokers[1]

    def version(level: int, record: Message | None) -> int:
        assert record is not None
        return decode_record(framing.framed(record, level))[1]

    assert [version(level, partition(0, 1, directories=[])) for level in (7, 16, 17, 22, 23, 30)] == [0, 0, 1, 1, 2, 2]
    plain = broker(1, log_dirs=[])
    assert [version(level, plain) for level in (7, 8, 16, 17, 29, 30)] == [1, 2, 2, 3, 3, 4]
    assert version(7, fencing(before, fenced=True)) == 0
    assert version(7, stopping(before)) == 1
    assert version(17, changed_directories(before, [DISK], None)) == 2
    assert version(30, changed_directories(before, [], [DISK])) == 3
    for level, record in ((13, token), (12, records.BeginTransactionRecord())):
        with pytest.raises(InexpressibleChange, match=rf"before metadata.version {NAMES[level + 1]}"):
            framing.framed(record, level)
        assert version(level + 1, record) == 0


def test_replicas_are_recorded_in_directories() -> None:
    state = state_of([_LEVEL, broker(1), broker(2), topic(), partition(0, 1, 2, directories=[])])
    assert state.topics.states[TOPIC].partitions[0].directories == (MIGRATING, MIGRATING)
    record = plan_assignment(state.topics.states, 2, TOPIC, 0, DISK, {})
    assert record == change(0, directories=[MIGRATING, DISK])
    state.take(record)
    assert plan_assignment(state.topics.states, 2, TOPIC, 0, DISK, {}) is None


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (RemoveBroker(BrokerId(1)), "brokers register themselves"),
        (SetFeatures({}), "without a level of metadata.version"),
        (SetConfigs(ResourceType.IP, "x", {"SCRAM-SHA-256": "?"}), "only users have credentials"),
        (SetConfigs(ResourceType.USER, "x", {"color": "red"}), "no quota: 'red'"),
        (SetConfigs(ResourceType.BROKER_LOGGER, "1", {"x": "1"}), "no settings of BROKER_LOGGER"),
    ],
)
def test_commands_without_records_are_refused(command: Command, problem: str) -> None:
    with pytest.raises(InexpressibleChange, match=problem):
        _records_for([command], _base())


def test_settings_of_kinds_that_are_not_known_stay_in_snapshots() -> None:
    setting = records.ConfigRecord(resource_type=99, resource_name="x", name="y", value="z")
    quota = records.ClientQuotaRecord(
        entity=[records.QuotaEntity(entity_type="rack", entity_name="r")], key="q", value=2.5, remove=False
    )
    state = state_of([_LEVEL, setting, quota])
    assert state.image().configs == {}
    assert _decoded(list(snapshot_records(state))) == [_LEVEL, setting, quota]
    state.replay_all(framed(records.ConfigRecord(resource_type=99, resource_name="x", name="y", value=None)))
    assert _decoded(list(snapshot_records(state))) == [_LEVEL, quota]


_ENTITY = [records.QuotaEntity(entity_type="client-id", entity_name="c")]
_EVERYTHING: list[Message] = [
    records.FeatureLevelRecord(name="share.version", feature_level=1),
    broker(1, cordoned_log_dirs=[DISK]),
    broker(2, fenced=True, is_migrating_zk_broker=True, rack=None, features=[_RANGE]),
    records.RegisterControllerRecord(
        controller_id=3,
        incarnation_id=TOPIC,
        zk_migration_ready=False,
        end_points=[records.Endpoint(name="CONTROLLER", host="::1", port=1, security_protocol=1)],
        features=[_RANGE],
    ),
    topic(),
    partition(0, 1, 2, isr=[1], eligible_leader_replicas=[2]),
    records.ConfigRecord(resource_type=4, resource_name="1", name="x", value=""),
    records.ClientQuotaRecord(entity=_ENTITY, key="consumer_byte_rate", value=2.5, remove=False),
    records.ProducerIdsRecord(broker_id=-1, next_producer_id=7000),
    records.AccessControlEntryRecord(
        id=DISK,
        resource_type=2,
        resource_name="t",
        pattern_type=4,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=2,
    ),
    records.UserScramCredentialRecord(
        name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    ),
    records.DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=["User:c"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="x",
    ),
]


def test_a_snapshot_has_everything_in_kafkas_order() -> None:
    everything = [_LEVEL, *_EVERYTHING]
    assert _decoded(list(snapshot_records(state_of(everything)))) == everything


@pytest.mark.parametrize(
    ("level", "lost"),
    [
        (7, {"RegisterControllerRecord", "UserScramCredentialRecord", "DelegationTokenRecord"}),
        (12, {"RegisterControllerRecord", "DelegationTokenRecord"}),
        (14, {"RegisterControllerRecord"}),
        (17, set()),
        (29, set()),
    ],
)
def test_a_snapshot_leaves_out_what_its_level_cannot_have(level: int, lost: set[str]) -> None:
    state = state_of([records.FeatureLevelRecord(name="metadata.version", feature_level=level), *_EVERYTHING])
    written = _decoded(list(snapshot_records(state)))
    kinds = {type(record).__name__ for record in written}
    assert {type(record).__name__ for record in _EVERYTHING} - kinds == lost
    again = state_of(written)
    (recorded,) = again.topics.states[TOPIC].partitions.values()
    assert recorded.eligible == ((2,) if level >= 23 else ())
    assert recorded.directories == ((DISK, DISK) if level >= 17 else (MIGRATING, MIGRATING))
    assert again.brokers[1].directories == ((DISK,) if level >= 17 else ())
    assert (again.brokers[1].cordoned, again.brokers[2].is_from_zookeeper) == (None, level >= 8)


def test_an_eligible_replica_that_comes_into_sync_is_named_as_eligible_no_longer() -> None:
    state = state_of([_LEVEL, topic(), partition(0, 1, 2, 3, isr=[1], eligible_leader_replicas=[2, 3])])
    before = state.image(0).topics[T].partitions[0]
    assert (before.departed, before.eligible_count) == ((2, 3), 2)
    after = before._replace(
        isr=(BrokerId(1), BrokerId(2)),
        departed=(BrokerId(3),),
        eligible_count=1,
        partition_epoch=before.partition_epoch + 1,
    )
    (written,) = _decoded(_records_for([SetPartitions(T, (after,))], state))
    assert isinstance(written, records.PartitionChangeRecord)
    assert (written.isr, written.eligible_leader_replicas) == ([1, 2], [3])


def test_no_snapshot_is_of_the_middle_of_a_transaction() -> None:
    state = state_of([_LEVEL, records.BeginTransactionRecord(), topic()])
    with pytest.raises(InexpressibleChange, match="in the middle of a transaction"):
        snapshot_records(state)
    state.take(records.EndTransactionRecord())
    assert len(list(snapshot_records(state))) == 2


def test_a_snapshot_is_of_the_moment_it_was_asked_for() -> None:
    state = state_of([_LEVEL, broker(1), topic(), partition(0, 1)])
    taken = snapshot_records(state)
    state.replay_all(framed(records.RemoveTopicRecord(topic_id=TOPIC), records.UnfenceBrokerRecord(id=1, epoch=11)))
    assert [type(record).__name__ for record in _decoded(list(taken))] == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
    ]
