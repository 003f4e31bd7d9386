"""Members of a streams group that join, beat, lose answers, fall silent and leave, while topics come, grow and go,
settings change and coordinators take over, in any order.

What must hold whatever happens:
- no active task is with two members at a time, as far as living members know;
- a process never has a task twice, as one of whatever kind;
- a machine that only reads the log knows what the machine that wrote it knows to be durable;
- when things calm down, every task is active once, with the standby tasks that were asked for.
"""

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.state_machines import Driver

from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import ReplyT, Request
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import TopicsChanged
from ottla.groups.environment import GroupEnvironment
from ottla.groups.state_machine import GroupMachine
from ottla.groups.streams.events import StreamsBeat, StreamsHeartbeat
from ottla.groups.streams.group import StreamsGroup
from ottla.groups.streams.tasks import NOTHING, TaskId, TaskSets, each
from ottla.groups.streams.topology import InternalTopicInfo, Subtopology, Topology
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import GroupId, MemberId, ProcessId, SubtopologyId, TopicId, TopicName

G = GroupId("g")
SOURCE, SINK, CHANGELOG = (TopicName(name) for name in ("source", "sink", "changelog"))
S0, S1 = SubtopologyId("0"), SubtopologyId("1")
COUNTS = Topology(
    0,
    (
        Subtopology(S0, (SOURCE,), repartition_sink_topics=(SINK,)),
        Subtopology(
            S1,
            repartition_source_topics=(InternalTopicInfo(SINK),),
            state_changelog_topics=(InternalTopicInfo(CHANGELOG),),
        ),
    ),
)
PROCESSES = {MemberId(name): ProcessId(process) for name, process in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "r"))}
MEMBER = st.sampled_from(sorted(PROCESSES))
SESSION_MS, REBALANCE_MS = 10_000, 8_000


class Client:
    """What a living member knows."""

    def __init__(self) -> None:
        self.epoch = 0
        self.tasks = NOTHING
        self.is_in_doubt = False
        """An answer was lost: the next heartbeat says everything."""

    def hear(self, beat: StreamsBeat) -> None:
        self.epoch = beat.member_epoch
        self.is_in_doubt = False
        if beat.tasks is not None:
            self.tasks = beat.tasks


class StreamsGroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.settings = GroupSettings(
            streams_session_timeout_ms=SESSION_MS,
            streams_initial_rebalance_delay_ms=0,
            streams_assignment_interval_ms=0,
            streams_num_standby_replicas=1,
        )
        self.counts: dict[TopicName, int] = {SOURCE: 3, SINK: 3, CHANGELOG: 3}
        self.show_topics()
        self.driver = Driver(self.new_machine())
        self.driver.carry_out(self.driver.machine.loaded(self.driver.now_ms))
        self.clients: dict[MemberId, Client] = {}

    def new_machine(self) -> GroupMachine:
        return GroupMachine(
            GroupConfig(), lambda: "uuid", GroupEnvironment(lambda: self.topics, lambda group: self.settings)
        )

    def show_topics(self) -> None:
        self.topics = FixedTopics(
            [
                Topic(name, TopicId(UUID(int=1 + number)), ((),) * count)
                for number, (name, count) in enumerate(sorted(self.counts.items()))
            ]
        )

    def topics_changed(self) -> None:
        self.show_topics()
        self.ask(TopicsChanged(frozenset({SOURCE, SINK, CHANGELOG})))

    def ask(self, request: Request[ReplyT]) -> ReplyT:
        return self.driver.ask(request)

    def group(self) -> StreamsGroup | None:
        found = self.driver.machine.groups.get(G)
        return found if isinstance(found, StreamsGroup) else None

    def send(self, member: MemberId, epoch: int, owned: TaskSets | None, **more: Any) -> StreamsBeat:
        event = StreamsHeartbeat(G, member, epoch, 0, None, "c", "/h", owned=owned, **more)
        beat: StreamsBeat = self.ask(event)
        self.forget_fenced()
        return beat

    def forget_fenced(self) -> None:
        """A member that is fenced would find out, and give up everything, before anything else happens."""
        group = self.group()
        known = {} if group is None else group.members
        self.clients = {name: client for name, client in self.clients.items() if name in known}

    # --- what members do ---

    @rule(member=MEMBER, answer_is_lost=st.booleans())
    def join(self, member: MemberId, answer_is_lost: bool) -> None:
        client = self.clients.setdefault(member, Client())
        client.tasks = NOTHING
        beat = self.send(
            member,
            0,
            NOTHING,
            topology=COUNTS,
            process_id=PROCESSES[member],
            rebalance_timeout_ms=REBALANCE_MS,
        )
        assert beat.error is ErrorCode.NONE, beat
        if answer_is_lost:
            client.epoch = 0
        else:
            client.hear(beat)

    @rule(member=MEMBER, says_what_it_has=st.booleans(), answer_is_lost=st.booleans())
    def beat(self, member: MemberId, says_what_it_has: bool, answer_is_lost: bool) -> None:
        client = self.clients.get(member)
        if client is None or client.epoch <= 0:
            return
        beat = self.send(member, client.epoch, client.tasks if says_what_it_has or client.is_in_doubt else None)
        if beat.error is ErrorCode.FENCED_MEMBER_EPOCH or beat.error is ErrorCode.INVALID_REQUEST:
            client.epoch, client.tasks = 0, NOTHING
            return
        assert beat.error is ErrorCode.NONE, beat
        if answer_is_lost:
            client.is_in_doubt = True
        else:
            client.hear(beat)

    @rule(rounds=st.integers(1, 3))
    def all_beat(self, rounds: int) -> None:
        for member in sorted(self.clients) * rounds:
            self.beat(member, says_what_it_has=True, answer_is_lost=False)

    @rule(member=MEMBER)
    def leave(self, member: MemberId) -> None:
        if member in self.clients:
            assert self.send(member, -1, None).error is ErrorCode.NONE

    @rule(ms=st.integers(1, SESSION_MS))
    def time_passes(self, ms: int) -> None:
        self.driver.pass_time(ms)
        self.forget_fenced()

    # --- what happens around ---

    @rule()
    def internal_topics_are_created(self) -> None:
        group = self.group()
        if group is None or group.configured is None:
            return
        self.counts |= {topic.name: topic.partitions for topic in group.configured.missing}
        self.topics_changed()

    @precondition(lambda self: self.counts.get(SOURCE, 9) < 6)
    @rule()
    def all_topics_grow(self) -> None:
        self.counts = {name: count + 1 for name, count in self.counts.items()}
        self.topics_changed()

    @rule(name=st.sampled_from([SOURCE, SINK, CHANGELOG]))
    def a_topic_goes(self, name: TopicName) -> None:
        self.counts.pop(name, None)
        self.topics_changed()

    @rule()
    def the_source_is_made(self) -> None:
        self.counts.setdefault(SOURCE, max([2, *self.counts.values()]))
        self.topics_changed()

    @rule(replicas=st.integers(0, 2), delay_ms=st.sampled_from([0, 3_000]), interval_ms=st.sampled_from([0, 1_000]))
    def settings_change(self, replicas: int, delay_ms: int, interval_ms: int) -> None:
        self.settings = self.settings._replace(
            streams_num_standby_replicas=replicas,
            streams_initial_rebalance_delay_ms=delay_ms,
            streams_assignment_interval_ms=interval_ms,
        )

    @rule()
    def another_coordinator_takes_over(self) -> None:
        successor = self.replayed()
        self.driver.machine = successor
        self.driver.timers.clear()
        self.driver.carry_out(successor.loaded(self.driver.now_ms))

    def replayed(self) -> GroupMachine:
        machine = self.new_machine()
        for position, record in enumerate(self.driver.log):
            decoded = machine.records.decode(*machine.records.encode(record))
            assert decoded is not None
            machine.replay(decoded, position, -1)
        return machine

    # --- what must hold ---

    @invariant()
    def no_active_task_is_with_two(self) -> None:
        """A client whose answer was lost may not know yet that it has a task, but never has one that is not its own."""
        holders: dict[TaskId, MemberId] = {}
        for name, client in self.clients.items():
            for task in each(client.tasks.active):
                assert task not in holders, f"{task} is with {holders[task]} and {name}"
                holders[task] = name

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        group = self.group()
        held: set[tuple[ProcessId, TaskId]] = set()
        for member in () if group is None else group.members.values():
            for sets in (member.assigned, member.pending_revocation):
                for task in (task for tasks in sets for task in each(tasks)):
                    assert (member.process_id, task) not in held
                    held.add((member.process_id, task))

    @invariant()
    def a_successor_knows_what_lasts(self) -> None:
        ours, theirs = self.group(), self.replayed().groups.get(G)
        if ours is None:
            assert theirs is None
            return
        assert isinstance(theirs, StreamsGroup)
        for name in (
            *("epoch", "metadata_hash", "validated_topology_epoch", "assignment_configs", "assignment_epoch"),
            *("assigned_at_ms", "topology", "members", "target", "state_name"),
        ):
            assert getattr(theirs, name) == getattr(ours, name), name

    def teardown(self) -> None:
        """Everything calms down."""
        if SOURCE not in self.counts:
            self.the_source_is_made()
        for name in (SINK, CHANGELOG):
            self.counts[name] = self.counts[SOURCE]
        self.topics_changed()
        for member in ("a", "c"):
            self.join(MemberId(member), answer_is_lost=False)
        for _ in range(40):
            self.driver.pass_time(1_000)
            self.forget_fenced()
            for member, client in list(self.clients.items()):
                if client.epoch == 0:
                    self.join(member, answer_is_lost=False)
                self.beat(member, says_what_it_has=True, answer_is_lost=False)
        group = self.group()
        assert group is not None
        assert group.state_name == "Stable"
        active = sorted(task for client in self.clients.values() for task in each(client.tasks.active))
        assert active == [TaskId(key, index) for key in (S0, S1) for index in range(self.counts[SOURCE])]
        processes = {PROCESSES[member] for member in self.clients}
        replicas = min(self.settings.streams_num_standby_replicas, len(processes) - 1)
        standby = [task for client in self.clients.values() for task in each(client.tasks.standby)]
        assert sorted(standby) == sorted([TaskId(S1, index) for index in range(self.counts[SOURCE])] * replicas)


StreamsGroupsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreamsGroups = StreamsGroupsMachine.TestCase
