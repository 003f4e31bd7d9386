"""A machine with streams groups, topics around it, and the requests of members."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.support.state_machines import Driver

from ottla.config.group_settings import GroupSettings
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import TopicsChanged
from ottla.groups.environment import GroupEnvironment
from ottla.groups.state_machine import GroupMachine
from ottla.groups.streams.configured import StatusCode
from ottla.groups.streams.events import (
    StreamsBeat,
    StreamsHeartbeat,
)
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.tasks import NOTHING, TaskSets
from ottla.groups.streams.topology import InternalTopicInfo, Subtopology, Topology
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import (
    GroupId,
    MemberId,
    ProcessId,
    SubtopologyId,
    TopicId,
    TopicName,
)

G = GroupId("g")
A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
S0, S1 = SubtopologyId("0"), SubtopologyId("1")
SOURCE, SINK = TopicName("source"), TopicName("g-by-word-repartition")
CHANGELOG = TopicName("g-counts-changelog")
SETTINGS = GroupSettings(
    streams_assignment_interval_ms=0,
    streams_heartbeat_interval_ms=5_000,
    streams_initial_rebalance_delay_ms=0,
    streams_session_timeout_ms=45_000,
)

READS = Topology(0, (Subtopology(S0, (SOURCE,)),))
COUNTS = Topology(
    0,
    (
        Subtopology(S0, (SOURCE,), repartition_sink_topics=(SINK,)),
        Subtopology(
            S1,
            repartition_source_topics=(InternalTopicInfo(SINK),),
            state_changelog_topics=(InternalTopicInfo(CHANGELOG, configs=(("cleanup.policy", "compact"),)),),
        ),
    ),
)


def tasks(**partitions: Sequence[int]) -> dict[SubtopologyId, frozenset[int]]:
    """`_0=[1]`: partition 1 of subtopology 0."""
    return {SubtopologyId(name.lstrip("_")): frozenset(numbers) for name, numbers in partitions.items()}


def active(**partitions: Sequence[int]) -> TaskSets:
    return TaskSets(tasks(**partitions))


class Groups(Driver):
    """A machine with topics around it."""

    def __init__(self, settings: GroupSettings = SETTINGS, max_size: int = 100, **topics: int) -> None:
        self.config = GroupConfig(group_streams_max_size=max_size)
        self.settings = settings
        self.known = {TopicName(name): count for name, count in (topics or {SOURCE: 3}).items()}
        self.topics = FixedTopics()
        super().__init__(self.new_machine())
        self.make()

    def new_machine(self) -> GroupMachine:
        return GroupMachine(
            self.config, lambda: "uuid", GroupEnvironment(lambda: self.topics, lambda group: self.settings)
        )

    def make(self, **topics: int) -> None:
        """Have these topics made, or grown, besides those that there are."""
        self.known |= {TopicName(name): count for name, count in topics.items()}
        self.topics = FixedTopics(
            [
                Topic(name, TopicId(UUID(int=1 + number)), ((),) * count)
                for number, (name, count) in enumerate(self.known.items())
            ]
        )
        self.ask(TopicsChanged(frozenset(self.known)))

    def beat(
        self,
        member: MemberId,
        epoch: int,
        owned: TaskSets | None = None,
        *,
        group: GroupId = G,
        topology: Topology | None = None,
        process: str | None = None,
        **more: Any,
    ) -> StreamsBeat:
        beat: StreamsBeat = self.ask(
            StreamsHeartbeat(
                group,
                member,
                epoch,
                more.pop("endpoint_epoch", 0),
                more.pop("rack", None),
                "c",
                "/h",
                more.pop("timeout", -1),
                topology,
                owned,
                None if process is None else ProcessId(process),
                **more,
            )
        )
        return beat

    def join(self, member: MemberId, topology: Topology = READS, **more: Any) -> StreamsBeat:
        beat = self.beat(
            member, 0, NOTHING, topology=topology, process=more.pop("process", f"p-{member}"), timeout=9_000, **more
        )
        assert beat.error is ErrorCode.NONE, beat
        return beat

    def settle(self, *members: MemberId) -> None:
        """Have the members beat until nothing moves: each has given up what it is not assigned."""
        for _ in range(20):
            before = len(self.log)
            for member in members:
                known = self.group.members[member]
                beat = self.beat(member, known.epoch, known.assigned)
                assert beat.error is ErrorCode.NONE, beat
            if len(self.log) == before:
                return
        raise AssertionError("the group does not settle")

    @property
    def group(self) -> StreamsGroup:
        group = self.machine.groups[G]
        assert isinstance(group, StreamsGroup)
        return group

    def successor(self) -> "Groups":
        """Another broker's machine that has read the log."""
        other = Groups(self.settings)
        other.topics, other.known, other.now_ms = self.topics, self.known, self.now_ms
        for position, record in enumerate(self.log):
            key, value = self.machine.records.encode(record)
            other.machine.replay(other.machine.records.decode(key, value), position, -1)
        other.carry_out(other.machine.loaded(self.now_ms))
        return other


def codes(beat: StreamsBeat) -> list[StatusCode]:
    return [status.code for status in beat.statuses]
