"""Consumer groups (KIP-848) of a real broker, over sockets: what only the broker around the machine can do."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.messages import consumer_group_describe as cd
from ottla.protocol.messages import consumer_group_heartbeat as ch
from ottla.protocol.messages import create_partitions as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import update_features as uf
from ottla.protocol.primitives import NULL_UUID
from ottla.testing import Broker, ManualClock

LEAVE = -1
GROUP = 32


def create(broker: Broker, name: str, partitions: int = 2) -> None:
    topic = ct.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    (made,) = ask(broker.bootstrap, ct.CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code == 0, made


def coordinate(broker: Broker) -> None:
    """Have the broker coordinate groups, as clients do by asking who does."""

    def found() -> bool:
        (answer,) = ask(broker.bootstrap, fc.FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        return not answer.error_code

    eventually(found)


def describe(broker: Broker, group: str = "g") -> cd.DescribedGroup:
    request = cd.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (described,) = ask(broker.bootstrap, request, 1).groups
    return described


class Member:
    """One that takes on whatever it is assigned with its next heartbeat."""

    def __init__(self, broker: Broker, name: str, group: str = "g") -> None:
        self._broker = broker
        self.name = name
        self._group = group
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}

    def ask(self, epoch: int, **fields: Any) -> ch.ConsumerGroupHeartbeatResponse:
        request = ch.ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.name, member_epoch=epoch, **fields
        )
        return ask(self._broker.bootstrap, request, 1)

    def join(self, **fields: Any) -> None:
        self._take(self.ask(0, rebalance_timeout_ms=5000, topic_partitions=[], **fields))

    def beat(self, **fields: Any) -> None:
        held = [ch.TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in self.owned.items()]
        self._take(self.ask(self.epoch, topic_partitions=held, **fields))

    def _take(self, answer: ch.ConsumerGroupHeartbeatResponse) -> None:
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}

    @property
    def size(self) -> int:
        return sum(len(numbers) for numbers in self.owned.values())


def settle(*members: Member, sizes: list[int]) -> None:
    """Heartbeats until the members hold so many partitions, in any order."""

    def settled() -> bool:
        for member in members:
            member.beat()
        return sorted(member.size for member in members) == sizes

    eventually(settled)


def test_a_group_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    with broker:
        create(broker, "t", 4)
        coordinate(broker)
        members = [Member(broker, name) for name in "ab"]
        for member in members:
            member.join(subscribed_topic_names=["t"], rack_id="r")
        settle(*members, sizes=[2, 2])
        before = describe(broker)
        assert before.group_state == "Stable"
    with broker:
        eventually(lambda: describe(broker).error_code == 0)
        assert describe(broker) == before
        for member in members:
            held, epoch = member.owned, member.epoch
            answer = member.ask(epoch)
            assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, epoch, None)
            member.beat()
            assert (member.owned, member.epoch) == (held, epoch)


def test_partitions_that_are_added_are_assigned(ottla_broker: Broker) -> None:
    create(ottla_broker, "t", 2)
    coordinate(ottla_broker)
    members = [Member(ottla_broker, name) for name in "ab"]
    for member in members:
        member.join(subscribed_topic_names=["t"])
    settle(*members, sizes=[1, 1])
    growth = cp.CreatePartitionsTopic(name="t", count=6, assignments=None)
    ask(ottla_broker.bootstrap, cp.CreatePartitionsRequest(topics=[growth], timeout_ms=1000, validate_only=False), 3)
    settle(*members, sizes=[3, 3])


def test_topics_that_come_and_go(ottla_broker: Broker) -> None:
    coordinate(ottla_broker)
    by_name, by_expression = Member(ottla_broker, "a"), Member(ottla_broker, "a", "h")
    by_name.join(subscribed_topic_names=["later"])
    by_expression.join(subscribed_topic_regex="la.*|none")
    assert (by_name.size, by_expression.size) == (0, 0)
    create(ottla_broker, "later", 2)
    settle(by_name, sizes=[2])
    settle(by_expression, sizes=[2])
    gone = dt.DeleteTopicState(name="later", topic_id=NULL_UUID)
    ask(ottla_broker.bootstrap, dt.DeleteTopicsRequest(topics=[gone], timeout_ms=1000), 6)
    settle(by_name, sizes=[0])
    settle(by_expression, sizes=[0])


def test_an_expression_over_many_topics_holds_nobody_up(ottla_broker: Broker) -> None:
    """The fixture fails a test whose broker's event loop stood still."""
    for first in range(0, 300, 20):
        topics = [
            ct.CreatableTopic(name=f"topic-{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for n in range(first, first + 20)
        ]
        made = ask(ottla_broker.bootstrap, ct.CreateTopicsRequest(topics=topics), 7).topics
        assert not any(topic.error_code for topic in made)
    coordinate(ottla_broker)
    member = Member(ottla_broker, "a")
    member.join(subscribed_topic_regex="(t|to|top|topi|topic)*-.*[02468]+(1|11|111)*")
    settle(member, sizes=[sum(_has_even_digit_before_ones(n) for n in range(300))])


def _has_even_digit_before_ones(number: int) -> bool:
    return any(digit in "02468" for digit in str(number).rstrip("1")[-1:])


def test_a_groups_own_settings_hold_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(directory=tmp_path, clock=clock) as broker:
        create(broker, "t")
        coordinate(broker)
        member = Member(broker, "a")
        member.join(subscribed_topic_names=["t"])
        member.beat()
        clock.advance(seconds=11)  # members of a group that has just moved are to come sooner

        def interval(value: str) -> int:
            resource = ic.AlterConfigsResource(
                resource_type=GROUP,
                resource_name="g",
                configs=[ic.AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value=value)],
            )
            ask(broker.bootstrap, ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
            return int(member.ask(member.epoch).heartbeat_interval_ms)

        assert member.ask(member.epoch).heartbeat_interval_ms == 5000
        assert interval("6000") == 6000
        assert interval("7000") == 7000


def test_consumer_groups_can_be_left_out(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, config={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        coordinate(broker)
        answer = Member(broker, "a").ask(0, rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert describe(broker).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_lower_group_version_turns_them_off(ottla_broker: Broker) -> None:
    coordinate(ottla_broker)
    member = Member(ottla_broker, "a")
    member.join(subscribed_topic_names=[])
    update = uf.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    answer = ask(ottla_broker.bootstrap, uf.UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == 0, answer
    assert member.ask(member.epoch).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert describe(ottla_broker).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_epoch": 99}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "h"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_a_refused_request_leaves_the_group_as_it_was(
    ottla_broker: Broker, fields: dict[str, Any], code: ErrorCode
) -> None:
    create(ottla_broker, "t")
    coordinate(ottla_broker)
    member = Member(ottla_broker, "a")
    member.join(subscribed_topic_names=["t"])
    settle(member, sizes=[2])
    before = describe(ottla_broker)
    request: dict[str, Any] = {"group_id": "g", "member_id": "a", "member_epoch": member.epoch, **fields}
    answer = ask(ottla_broker.bootstrap, ch.ConsumerGroupHeartbeatRequest(**request), 1)
    assert answer.error_code == code
    assert describe(ottla_broker) == before
    assert describe(ottla_broker, "h").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_subscription_that_fits_into_no_record_disturbs_nobody(ottla_broker: Broker) -> None:
    """Kafka refuses it with UNKNOWN_SERVER_ERROR, too. Others in the same partition go on as if nothing had been."""
    create(ottla_broker, "t")
    coordinate(ottla_broker)
    member, greedy = Member(ottla_broker, "member"), Member(ottla_broker, "greedy")
    member.join(subscribed_topic_names=["t"])
    before = describe(ottla_broker)
    too_many = [f"{number:06}" * 40 for number in range(5_000)]
    refused = greedy.ask(0, rebalance_timeout_ms=5000, topic_partitions=[], subscribed_topic_names=too_many)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    member.beat()
    assert describe(ottla_broker) == before
