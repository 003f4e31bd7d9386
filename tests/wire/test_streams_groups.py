"""Streams groups (KIP-1071) over a socket: what is refused, and a broker that is killed while tasks move."""

from tests.support.eventually import eventually
from tests.support.group_stories import prepare
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.streams_member import Member, counting, heartbeat, reading, settle

from ottla.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.session.timeout.ms": "10000",
}
GROUP = "words"
DESCRIBE = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)


def test_members_go_on_with_a_broker_that_was_killed() -> None:
    with OttlaProcess(properties=SETTINGS) as broker:
        prepare(broker, "t")
        first, second = (Member(broker.bootstrap, GROUP, who) for who in ("one", "two"))
        first.join(counting(GROUP, "t"))
        settle(first, tasks=4)
        second.join(counting(GROUP, "t"))
        broker.restart(kill=True)
        eventually(lambda: ask(broker.bootstrap, DESCRIBE, 0).groups[0].error_code == 0)
        settle(first, second, tasks=4)
        assert {len(member.active["0"]) for member in (first, second)} == {1}
        (group,) = ask(broker.bootstrap, DESCRIBE, 0).groups
        assert (group.group_state, group.group_epoch) == ("Stable", first.epoch)


def test_states_of_two_words_are_found_as_tools_and_clients_write_them() -> None:
    with OttlaProcess(properties=SETTINGS) as broker:
        prepare(broker, "t")
        Member(broker.bootstrap, GROUP).join(reading("not-there"))
        for state in ("NotReady", "not_ready", "notready"):
            request = ListGroupsRequest(states_filter=[state], types_filter=["streams"])
            (listed,) = ask(broker.bootstrap, request, 5).groups
            assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "streams", "NotReady")


def test_groups_that_are_turned_off_are_refused() -> None:
    with OttlaProcess(properties=SETTINGS) as broker:
        prepare(broker, "t")
        off = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=3)
        assert ask(broker.bootstrap, UpdateFeaturesRequest(feature_updates=[off]), 1).error_code == 0
        is_off(broker.bootstrap)
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with OttlaProcess(properties=SETTINGS | protocols) as broker:
        is_off(broker.bootstrap)


def is_off(bootstrap: str) -> None:
    answer = ask(bootstrap, heartbeat("a", GROUP, 0, reading("t")), 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(bootstrap, DESCRIBE, 0).groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_topology_that_is_too_large_for_the_log_is_refused() -> None:
    with OttlaProcess(properties=SETTINGS) as broker:
        prepare(broker, "t")
        answer = ask(broker.bootstrap, heartbeat("a", GROUP, 0, reading(*(f"t{n:0240}" for n in range(8_000)))), 0)
        assert answer.error_code != 0
        assert ask(broker.bootstrap, heartbeat("a", GROUP, 0, reading("t")), 0).error_code == 0
