"""Members of consumer groups as clients of a driven machine: they say what they have, and take what they are given."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import ReplyT, Request
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import (
    JOINING,
    ConsumerBeat,
    ConsumerHeartbeat,
    DescribeConsumerGroups,
    DescribeHistory,
    Partitions,
    RegexesResolved,
    TopicsChanged,
)
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import CommitOffsets, OffsetToCommit
from ottla.groups.state_machine import GroupMachine
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, TopicId, TopicName
from tests.support.state_machines import Driver

G: Final = GroupId("g")


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().rjust(16, b"\1")))


def make_topic(name: str, racks: int | Iterable[tuple[str, ...]]) -> Topic:
    """`racks`: one tuple for each partition, or how many partitions there are."""
    each = ((),) * racks if isinstance(racks, int) else tuple(racks)
    return Topic(TopicName(name), topic_id(name), each)


class World:
    """A machine, the topics around it, and numbers for ids."""

    def __init__(self, topics: Mapping[str, Any], **config: Any) -> None:
        self._numbers = iter(range(1_000_000))
        self.config = GroupConfig(group_initial_rebalance_delay_ms=10, **config)
        self.settings = GroupSettings(consumer_assignment_interval_ms=0)
        self.environment = GroupEnvironment(
            topics=lambda: self.topics,
            settings=lambda group: self.settings,
            regex_problem=lambda regex: "unclosed" if regex == "(" else None,
        )
        self.set_topics(topics)
        self.driver = Driver(self.new_machine())
        self.driver.carry_out(self.driver.machine.loaded(self.driver.now_ms))

    @property
    def machine(self) -> GroupMachine:
        machine: GroupMachine = self.driver.machine
        return machine

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.config, lambda: f"id-{self.number()}", self.environment)

    def number(self) -> int:
        return next(self._numbers)

    def ask(self, request: Request[ReplyT]) -> ReplyT:
        return self.driver.ask(request)

    def records(self, kind: type) -> list[Any]:
        """The records of one class in the log."""
        return [record for record in self.driver.log if isinstance(record, kind)]

    def set_topics(self, topics: Mapping[str, Any], version: int = 0) -> None:
        """Set the topics without an announcement."""
        made = [make_topic(name, racks) for name, racks in topics.items()]
        self.topics = FixedTopics(made, version)
        self.topic_names = {topic.topic_id: topic.name for topic in made}

    def change_topics(self, topics: Mapping[str, Any], *changed: str) -> None:
        self.set_topics(topics, self.topics.version + 1)
        self.ask(TopicsChanged(frozenset(map(TopicName, changed))))

    def resolve(self, **topics: Iterable[str]) -> None:
        found = {regex: frozenset(map(TopicName, names)) for regex, names in topics.items()}
        self.ask(RegexesResolved(G, found, self.topics.version))

    def describe(self) -> Any:
        (described,) = self.ask(DescribeConsumerGroups((G,)))
        return described

    def history(self) -> Any:
        return self.ask(DescribeHistory(G)).rebalances

    def restart(self) -> None:
        """Another machine takes over, with nothing but the log."""
        driver = Driver(self.new_machine(), now_ms=self.driver.now_ms)
        for position, record in enumerate(self.driver.log):
            driver.machine.replay(record, position, -1)
            driver.log.append(record)
        driver.carry_out(driver.machine.loaded(driver.now_ms))
        self.driver = driver


class Consumer:
    """One member. `has` is what it reads from now."""

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: Iterable[str] = ("t",),
        *,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        regex: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = MemberId(member_id)
        self.topics = frozenset(map(TopicName, topics))
        self.instance = None if instance is None else InstanceId(instance)
        self.rack = rack
        self.assignor = assignor
        self.regex = regex
        self.epoch = JOINING
        self.has: Partitions = {}
        self.to_have: Partitions = {}
        self.is_unsure = False
        """An answer has been lost: the next request says everything, to be told everything."""

    def send(self, **changes: Any) -> ConsumerBeat:
        """A request that says nothing but who sends it, besides `changes`."""
        request = ConsumerHeartbeat(G, self.member_id, self.epoch, self.instance, None, "c", "/h")
        if self.is_unsure:
            request = replace(request, rebalance_timeout_ms=60_000, topic_names=self.topics, owned=self.has)
        beat = self.world.ask(replace(request, **changes))
        if beat.error is ErrorCode.NONE and beat.member_id is not None:
            self.member_id, self.epoch, self.is_unsure = beat.member_id, beat.member_epoch, False
            if beat.assignment is not None:
                self.to_have = beat.assignment
        return beat

    def join(self) -> ConsumerBeat:
        self.epoch, self.has, self.to_have = JOINING, {}, {}
        return self.send(
            rack_id=self.rack,
            rebalance_timeout_ms=60_000,
            topic_names=self.topics,
            topic_regex=self.regex,
            assignor=self.assignor,
            owned={},
        )

    def beat(self, **changes: Any) -> ConsumerBeat:
        """Give up and take what the last answer said, then say what it has."""
        self.has = self.to_have
        return self.send(owned=self.has, **changes)

    def leave(self, epoch: int = -1) -> ConsumerBeat:
        return self.send(member_epoch=epoch)

    @property
    def partitions(self) -> list[str]:
        names = self.world.topic_names
        return sorted(f"{names[topic]}-{index}" for topic, indexes in self.has.items() for index in indexes)


def settle(*consumers: Consumer, rounds: int = 8) -> None:
    """Send heartbeats until no member has anything to change."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()


def commit(member: str, epoch: int, **changes: Any) -> CommitOffsets:
    """OffsetCommit of a member at an epoch, of one offset."""
    offset = OffsetToCommit(TopicName("t"), PartitionId(0), 7)
    return replace(CommitOffsets(G, MemberId(member), None, epoch, (offset,)), **changes)
