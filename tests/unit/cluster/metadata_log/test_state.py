"""Records of Kafka's metadata log add up to a state and an image of it."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.metadata_log.framed import DISK, TOPIC, broker, change, framed, partition, state_of, topic

from ottla.cluster.image import PartitionImage, ResourceType
from ottla.cluster.metadata_log.levels import UnknownMetadataVersion
from ottla.cluster.metadata_log.partitions import LOST, marked_full
from ottla.cluster.metadata_log.registrations import CONFIRMS_LEADERSHIP
from ottla.cluster.metadata_log.state import AclPattern, ClusterState, UnknownRecord
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId, PartitionId, TopicName
from ottla.ids import TopicPartition as Partition
from ottla.protocol import metadata_records as records
from ottla.protocol.schema import Message

T = TopicName("t")


def _partition(state: ClusterState, number: int = 0) -> PartitionImage:
    found = state.image().partition(Partition(T, PartitionId(number)))
    assert found is not None
    return found


def test_the_image_has_the_brokers_that_are_not_fenced() -> None:
    confirming = [records.FeatureRange(name=CONFIRMS_LEADERSHIP, min_supported_version=0, max_supported_version=1)]
    state = state_of([broker(1), broker(2, fenced=True), broker(3, features=confirming)])
    image = state.image()
    assert sorted(image.brokers) == [1, 3]
    one = image.brokers[BrokerId(1)]
    assert (one.epoch, one.rack, one.endpoints) == (11, "r", {"SASL": ("h", 9001)})
    assert one.security_protocols == {"SASL": "SASL_SSL"}
    assert [each.confirms_leadership for each in image.brokers.values()] == [False, True]
    assert state.brokers[2].incarnation_id == UUID(int=502)

    going = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, in_controlled_shutdown=1)
    state.replay_all(framed(going, records.UnfenceBrokerRecord(id=2, epoch=12)))
    assert state.brokers[1].in_controlled_shutdown
    assert sorted(state.image().brokers) == [1, 2, 3], "a broker that stops is seen until it is fenced"
    state.replay_all(framed(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=1)))
    state.replay_all(framed(records.UnregisterBrokerRecord(broker_id=3, broker_epoch=13)))
    assert (sorted(state.image().brokers), sorted(state.brokers)) == ([2], [1, 2])


def test_epochs_follow_from_what_a_change_names() -> None:
    state = state_of([topic(), partition(0, 1, 2, 3)])
    state.replay_all(framed(change(0, isr=[1, 3])))
    first = _partition(state)
    assert (first.leader, first.leader_epoch, first.partition_epoch, first.isr) == (1, 5, 10, (1, 3))
    state.replay_all(
        framed(
            change(0, leader=3), change(0, leader=3, adding_replicas=[4], replicas=[1, 2, 3, 4], directories=[DISK] * 4)
        )
    )
    second = _partition(state)
    assert (second.leader, second.leader_epoch, second.partition_epoch) == (3, 7, 12)
    assert (second.adding, second.replicas) == ((4,), (1, 2, 3, 4))


def test_what_has_not_changed_stays_the_same_object() -> None:
    other = UUID(int=1001)
    state = state_of([broker(1), topic(), partition(0, 1), topic("u", other), partition(0, 1, topic_id=other)])
    before = state.image()
    assert state.image() is before
    state.replay_all(framed(change(0, leader=1)))
    after = state.image()
    assert after.topics[TopicName("u")] is before.topics[TopicName("u")]
    assert after.topics[T] is after.topics_by_id[after.topics[T].topic_id]
    assert after.brokers is before.brokers
    assert before.topics[T].partitions[0].leader_epoch == 5, "an image never changes"

    anew = ClusterState("cluster", like=after)
    anew.replay_all(framed(broker(1), topic(), partition(0, 1, leader_epoch=6, partition_epoch=10)))
    anew.replay_all(framed(topic("u", other), partition(0, 1, topic_id=other)))
    assert anew.image().topics is after.topics, "a snapshot of the same changes nothing"
    assert anew.image().brokers is after.brokers


def test_settings_quotas_and_credentials_are_settings() -> None:
    def quota(key: str, value: float, *, remove: bool = False, **parts: str | None) -> Message:
        entity = [records.QuotaEntity(entity_type=kind.replace("_", "-"), entity_name=parts[kind]) for kind in parts]
        return records.ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)

    config = records.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    secret = records.UserScramCredentialRecord(
        name="alice", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    state = state_of(
        [
            topic(),
            partition(0, 1),
            config,
            secret,
            quota("producer_byte_rate", 1024.0, user="alice"),
            quota("request_percentage", 50.0, user="a/b", client_id=None),
            quota("connection_creation_rate", 7.0, ip=None),
            quota("consumer_byte_rate", 9.0, client_id="c"),
            records.ConfigRecord(resource_type=99, resource_name="x", name="y", value="z"),
        ]
    )
    assert state.image().configs == {
        (ResourceType.TOPIC, "t"): {"retention.ms": "1"},
        (ResourceType.USER, "alice"): {
            "SCRAM-SHA-512": "salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096",
            "producer_byte_rate": "1024",
        },
        (ResourceType.USER_CLIENT, "a%2Fb/clients/<default>"): {"request_percentage": "50.0"},
        (ResourceType.IP, ""): {"connection_creation_rate": "7"},
        (ResourceType.CLIENT, "c"): {"consumer_byte_rate": "9"},
    }
    before = state.image()
    state.replay_all(
        framed(
            records.RemoveUserScramCredentialRecord(name="alice", mechanism=2),
            quota("consumer_byte_rate", 0.0, remove=True, client_id="c"),
            records.RemoveTopicRecord(topic_id=TOPIC),
        )
    )
    after = state.image()
    assert after.configs[ResourceType.USER, "alice"] == {"producer_byte_rate": "1024"}
    assert after.configs.keys() == before.configs.keys() - {(ResourceType.TOPIC, "t"), (ResourceType.CLIENT, "c")}
    assert "SCRAM-SHA-512" in before.configs[ResourceType.USER, "alice"]
    state.replay_all(framed(topic(), config, records.RemoveTopicRecord(topic_id=TOPIC), topic(), config))
    assert state.image().topic_config(T) == {"retention.ms": "1"}, "created, removed and created before it is seen"


def _after(record: records.PartitionChangeRecord) -> PartitionImage:
    """The partition after a change of one that nobody but broker 1 is in sync with."""
    state = state_of([topic(), partition(0, 1, 2, 3, isr=[1], leader_recovery_state=1), record])
    return _partition(state)


def test_eligible_and_last_known_replicas_have_left_in_their_order() -> None:
    state = state_of([topic(), partition(0, 1, 2, 3, isr=[1], eligible_leader_replicas=[3], last_known_elr=[2])])
    first = _partition(state)
    assert (first.departed, first.eligible, first.last_known_leader) == ((3, 2), (3,), -1)
    recovering = change(0, leader=3, leader_recovery_state=1, eligible_leader_replicas=[], last_known_elr=[1, 2])
    state.replay_all(framed(recovering))
    second = _partition(state)
    assert (second.last_known_leader, second.departed, second.eligible) == (1, (2,), ())
    anew = change(0, leader=3, last_known_elr=[3, 3, 2])
    assert (_after(anew).begins_anew, _after(anew).last_known_leader, _after(anew).departed) == (True, -1, (2,))
    # Genuine Kafka has the last leader among both, or elected it without knowing what it has.
    both = change(0, leader=-1, isr=[], leader_recovery_state=0, eligible_leader_replicas=[1], last_known_elr=[1, 3])
    assert (_after(both).departed, _after(both).eligible) == ((1, 3), (1,))
    last = change(0, leader=1, isr=[1], leader_recovery_state=1, last_known_elr=[1])
    assert (_after(last).departed, _after(last).last_known_leader, _after(last).begins_anew) == ((), -1, False)

    state.replay_all(framed(change(0, leader_recovery_state=0), records.ClearElrRecord(topic_name="t")))
    third = _partition(state)
    assert (third.last_known_leader, third.departed, third.partition_epoch) == (-1, (), 12)
    state.replay_all(framed(records.ClearElrRecord(topic_name="")))
    assert _partition(state) == third, "there is nothing to clear any longer"


def test_replicas_in_directories_that_are_not_online_have_failed() -> None:
    spare = UUID(int=78)
    state = state_of([broker(1), broker(2, log_dirs=[DISK, spare]), topic(), partition(0, 1, 2), partition(1, 1, 2)])
    assert state.image().failed_replicas == frozenset()
    lost = records.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, log_dirs=[spare])
    state.replay_all(framed(lost))
    assert state.image().failed_replicas == {(2, T, 0), (2, T, 1)}
    state.replay_all(framed(change(1, directories=[DISK, spare]), change(0, directories=[LOST, spare])))
    assert state.image().failed_replicas == {(1, T, 0)}
    assert state.image().offline_replicas(T, _partition(state)) == (1,)
    state.replay_all(framed(records.RemoveTopicRecord(topic_id=TOPIC)))
    assert state.image().failed_replicas == frozenset()


def test_a_replica_in_a_full_directory_has_failed_and_is_intact_as_long_as_its_broker_has_the_directory() -> None:
    spare = UUID(int=78)
    state = state_of([broker(1), broker(2, log_dirs=[DISK, spare]), topic(), partition(0, 1, 2), partition(1, 1, 2)])
    state.replay_all(framed(change(0, directories=[DISK, marked_full(spare)])))
    assert (state.image().failed_replicas, state.image().full_replicas) == ({(2, T, 0)}, {(2, T, 0)})
    state.replay_all(framed(change(1, directories=[DISK, LOST])))
    assert (state.image().failed_replicas, state.image().full_replicas) == ({(2, T, 0), (2, T, 1)}, {(2, T, 0)})
    state.replay_all(framed(change(0, directories=[DISK, LOST])))
    assert state.image().full_replicas == frozenset()
    state.replay_all(framed(change(0, directories=[DISK, marked_full(spare)])))
    lost = records.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, log_dirs=[DISK])
    state.replay_all(framed(lost))
    assert (2, T, 0) in state.image().failed_replicas
    assert state.image().full_replicas == frozenset()


def test_features_have_the_offset_of_their_change_as_epoch() -> None:
    level = records.FeatureLevelRecord(name="metadata.version", feature_level=30)
    state = state_of([level, records.FeatureLevelRecord(name="share.version", feature_level=1)])
    image = state.image(41)
    assert (image.features, image.features_epoch) == ({"metadata.version": 30, "share.version": 1}, 41)
    state.replay_all(framed(records.NoOpRecord()))
    assert state.image(42) is image
    state.replay_all(framed(records.FeatureLevelRecord(name="share.version", feature_level=0)))
    assert (state.image(43).features, state.image(44).features_epoch) == ({"metadata.version": 30}, 43)


def test_rules_tokens_producer_ids_and_controllers_are_beside_the_image() -> None:
    rule = records.AccessControlEntryRecord(
        id=UUID(int=9),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    token = records.DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="x",
    )
    controller = records.RegisterControllerRecord(
        controller_id=7, incarnation_id=UUID(int=8), zk_migration_ready=False, end_points=[], features=[]
    )
    state = state_of([rule, token, controller, records.ProducerIdsRecord(broker_id=1, next_producer_id=3000)])
    pattern = AclPattern(2, "t", 3)
    assert (state.acls, state.tokens) == ({pattern: {UUID(int=9): rule}}, {"x": token})
    assert (state.next_producer_id, list(state.controllers)) == (3000, [7])
    assert (state.take_acl_changes(), state.take_token_changes()) == ({pattern}, {"x"})
    gone = framed(
        records.RemoveAccessControlEntryRecord(id=UUID(int=9)), records.RemoveDelegationTokenRecord(token_id="x")
    )
    state.replay_all(gone)
    assert (state.acls, state.acl_patterns, state.tokens) == ({}, {}, {})
    assert (state.take_acl_changes(), state.take_token_changes()) == ({pattern}, {"x"})
    assert (state.take_acl_changes(), state.take_token_changes()) == (set(), set())


def test_a_transaction_counts_when_it_ends() -> None:
    begin, end, abort = (
        records.BeginTransactionRecord(),
        records.EndTransactionRecord(),
        records.AbortTransactionRecord(),
    )
    state = state_of([begin, topic(), partition(0, 1)])
    assert state.in_transaction
    assert state.image().topics == {}, "the transaction has not ended"
    state.replay_all(framed(end, begin, topic("u", UUID(int=3)), abort))
    assert (sorted(state.image().topics), state.in_transaction) == (["t"], False)
    for wrong in ([end], [abort], [begin, begin]):
        with pytest.raises(CorruptMessage, match="a transaction of the metadata log"):
            state_of(wrong)


_UNCREATED = records.PartitionChangeRecord(partition_id=1, topic_id=TOPIC)
_EVERYWHERE = records.QuotaEntity(entity_type="ip", entity_name=None)
_ENDLESS = records.ClientQuotaRecord(entity=[_EVERYWHERE], key="x", value=float("inf"), remove=False)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([partition(0, 1)], "there is no topic"),
        ([records.RemoveTopicRecord(topic_id=TOPIC)], "there is no topic"),
        ([topic(), _UNCREATED], "partition 1 of t changes, and was never created"),
        ([topic(), partition(-1, 1)], "a partition -1"),
        ([topic(), topic("u")], "a second time"),
        ([topic(), topic("t", UUID(int=3))], "a second time"),
        ([topic(), partition(0, 1, directories=[DISK, DISK])], "1 replicas has 2 directories"),
        ([topic(), partition(0, 1, leader_recovery_state=5)], "recovery state 5"),
        ([records.ClearElrRecord(topic_name="t")], "no such topic"),
        ([records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1)], "there is none"),
        ([broker(1), records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1)], "has registered in 11"),
        ([broker(1), records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=2)], "the flag 2"),
        ([records.RemoveAccessControlEntryRecord(id=TOPIC)], "there is none"),
        ([_ENDLESS], "the quota x is inf"),
    ],
)
def test_records_that_do_not_fit_are_refused(found: Sequence[Message], problem: str) -> None:
    with pytest.raises(CorruptMessage, match=problem):
        state_of(found)


def test_missing_partitions_are_named() -> None:
    state = state_of([topic(), partition(0, 1), partition(2, 1)])
    with pytest.raises(CorruptMessage, match="topic t has 2 partitions, and none of them is partition 1"):
        state.image()


def test_records_of_newer_versions_and_damaged_ones_are_told_apart() -> None:
    state = ClusterState("cluster")
    for newer in (b"\1\x63\0", b"\1\2\x09", b"\2\2\0"):
        with pytest.raises(UnknownRecord, match="has to be upgraded"):
            state.replay(newer)
    whole = framed(topic())[0]
    endless = b"\1\3\2" + bytes(20) + b"\xff\xff\xff\xff\x0f"  # a partition with four billion replicas
    for damaged in (whole[:-1], whole + b"\0", b"", b"\1\3\2" + b"\xff" * 40, endless):
        with pytest.raises(CorruptMessage, match="damaged"):
            state.replay(damaged)


@pytest.mark.parametrize(("level", "advice"), [(31, "upgrade this node"), (6, "raise it with Kafka 3.9")])
def test_an_unknown_metadata_version_is_refused(level: int, advice: str) -> None:
    with pytest.raises(UnknownMetadataVersion, match=advice):
        state_of([records.FeatureLevelRecord(name="metadata.version", feature_level=level)])


@settings(max_examples=200)
@given(st.integers(0, 30), st.integers(0, 5), st.binary(max_size=60))
def test_bytes_that_are_no_record_are_corrupt(kind: int, version: int, rest: bytes) -> None:
    state = state_of([topic(), partition(0, 1, 2), broker(1)])
    with suppress(CorruptMessage):
        state.replay(bytes((1, kind, version)) + rest)
