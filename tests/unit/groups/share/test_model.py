"""Members of share groups that join, beat, leave, fall silent and subscribe anew, while topics come, grow and go, and
while state is initialized, or not, or late, or deleted, in any order.

What must hold whatever happens:
- nobody is answered twice, and nobody is left waiting;
- members have what they subscribe to and what is initialized, and nothing else, once they have been told;
- when things calm down, every partition that somebody subscribes to is read;
- a machine that only reads the log knows what the machine that wrote it knows to be durable.
"""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.state_machines import Driver, replay_newest

from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import ReplyT, Request
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import Partitions
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import DeleteGroups
from ottla.groups.share.events import (
    AlterShareOffsets,
    DeleteShareGroup,
    DeleteShareOffsets,
    ForgetShareTopics,
    RefreshShareMember,
    ShareBeat,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsDeleted,
    ShareStateFailed,
    ShareStateInitialized,
    ToInitialize,
)
from ottla.groups.share.group import ShareGroup
from ottla.groups.state_machine import GroupMachine
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import GroupId, MemberId, PartitionId, TopicId, TopicName

G = GroupId("g")
NAMES = [TopicName(name) for name in ("t", "u", "v")]
MEMBERS = [MemberId(f"m{number}") for number in range(4)]
SESSION_MS = 10_000
MEMBER = st.sampled_from(MEMBERS)
SUBSCRIPTION = st.frozensets(st.sampled_from(NAMES), min_size=1)


class ShareGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[TopicName, int] = {NAMES[0]: 2}
        self.lives: dict[TopicName, int] = dict.fromkeys(NAMES, 0)
        """How often a topic was made: each time it has another id."""
        self.show_topics()
        self.driver = Driver(self.new_machine())
        self.driver.carry_out(self.driver.machine.loaded(self.driver.now_ms))
        self.epochs: dict[MemberId, int] = {}
        """What members were told; one that is not here has never joined, or knows that it is out."""
        self.told: dict[MemberId, Partitions] = {}
        self.under_way: list[ToInitialize] = []

    def new_machine(self) -> GroupMachine:
        environment = GroupEnvironment(
            lambda: self.topics,
            lambda group: GroupSettings(share_assignment_interval_ms=0, share_session_timeout_ms=SESSION_MS),
        )
        return GroupMachine(GroupConfig(group_share_max_size=3), lambda: "uuid", environment)

    def show_topics(self) -> None:
        self.topics = FixedTopics([Topic(name, self.id_of(name), ((),) * count) for name, count in self.counts.items()])

    def id_of(self, name: TopicName) -> TopicId:
        return TopicId(UUID(int=100 * (NAMES.index(name) + 1) + self.lives[name]))

    @property
    def group(self) -> ShareGroup | None:
        group = self.driver.machine.groups.get(G)
        assert group is None or isinstance(group, ShareGroup)
        return group

    def ask(self, request: Request[ReplyT]) -> ReplyT:
        return self.driver.ask(request)

    def hear(self, member: MemberId, beat: ShareBeat) -> None:
        if beat.error:
            assert beat.error in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            self.epochs.pop(member, None)
            return
        assert beat.member_epoch >= self.epochs.get(member, 0), "an epoch went back"
        self.epochs[member] = beat.member_epoch
        if beat.assignment is not None:
            self.told[member] = beat.assignment
        if beat.initialize is not None:
            self.under_way.append(beat.initialize)

    def beat(self, member: MemberId, epoch: int, names: frozenset[TopicName] | None = None) -> ShareBeat:
        beat: ShareBeat = self.ask(ShareHeartbeat(G, member, epoch, None, "c", "/h", names))
        return beat

    # --- what members do ---

    @rule(member=MEMBER, names=SUBSCRIPTION)
    def joins(self, member: MemberId, names: frozenset[TopicName]) -> None:
        self.epochs.pop(member, None)
        self.hear(member, self.beat(member, 0, names))

    @rule(member=MEMBER)
    def beats(self, member: MemberId) -> None:
        if member in self.epochs:
            self.hear(member, self.beat(member, self.epochs[member]))

    @rule(member=MEMBER)
    def beats_unheard(self, member: MemberId) -> None:
        """The answer gets lost; what it would have the share coordinator do is done nevertheless."""
        if member in self.epochs:
            beat = self.beat(member, self.epochs[member])
            if beat.initialize is not None:
                self.under_way.append(beat.initialize)
            if beat.assignment is not None:
                self.told[member] = beat.assignment  # comes again with the epoch, as it is still the old one

    @rule(member=MEMBER, names=SUBSCRIPTION)
    def subscribes_anew(self, member: MemberId, names: frozenset[TopicName]) -> None:
        if member in self.epochs:
            self.hear(member, self.beat(member, self.epochs[member], names))

    @rule(member=MEMBER)
    def leaves(self, member: MemberId) -> None:
        self.beat(member, -1)
        self.epochs.pop(member, None)

    @rule(ms=st.sampled_from([100, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        self.driver.pass_time(ms)

    # --- what becomes of state ---

    @precondition(lambda self: self.under_way)
    @rule(at=st.integers(0, 9), works=st.booleans(), member=MEMBER)
    def state_is_initialized(self, at: int, works: bool, member: MemberId) -> None:
        wanted = self.under_way.pop(at % len(self.under_way))
        self.ask((ShareStateInitialized if works else ShareStateFailed)(G, wanted.partitions))
        if member in self.epochs:
            known = self.epochs[member]
            answer = self.ask(RefreshShareMember(G, member, known))
            if answer.error:
                assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
            else:
                self.hear(member, answer)

    @precondition(lambda self: self.under_way)
    @rule()
    def nobody_hears_what_became_of_state(self) -> None:
        self.under_way.clear()

    @rule(name=st.sampled_from(NAMES), start=st.integers(0, 9))
    def offsets_are_altered(self, name: TopicName, start: int) -> None:
        altered = self.ask(AlterShareOffsets(G, (ShareOffset(name, PartitionId(0), start),)))
        if altered.initialize is not None:
            self.under_way.append(altered.initialize)

    @rule(names=SUBSCRIPTION, works=st.booleans())
    def offsets_are_deleted(self, names: frozenset[TopicName], works: bool) -> None:
        deletion = self.ask(DeleteShareOffsets(G, tuple(names)))
        if works and deletion.partitions:
            self.ask(ShareOffsetsDeleted(G, frozenset(deletion.partitions)))

    @rule(works=st.booleans())
    def the_group_is_deleted(self, works: bool) -> None:
        deletion = self.ask(DeleteShareGroup(G))
        if works and not deletion.error:
            (error,) = self.ask(DeleteGroups((G,)))
            assert error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
            assert self.group is None

    # --- what becomes of topics ---

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 2))
    def a_topic_comes_or_grows(self, name: TopicName, more: int) -> None:
        self.counts[name] = min(self.counts.get(name, 0) + more, 5)
        self.show_topics()

    @rule(name=st.sampled_from(NAMES))
    def a_topic_goes(self, name: TopicName) -> None:
        if self.counts.pop(name, None) is not None:
            gone = self.id_of(name)
            self.lives[name] += 1
            self.show_topics()
            self.ask(ForgetShareTopics(frozenset({gone})))

    # --- what becomes of the machine ---

    @rule()
    def another_takes_over(self) -> None:
        machine = self.replayed()
        self.driver.machine = machine
        self.driver.timers.clear()
        self.driver.carry_out(machine.loaded(self.driver.now_ms))

    def replayed(self) -> GroupMachine:
        machine = self.new_machine()
        replay_newest(machine, self.driver.log)
        return machine

    @rule()
    def things_calm_down(self) -> None:
        """Members beat, and what they ask for is done, until nothing changes."""
        for _ in range(8):
            for member in list(self.epochs):
                self.hear(member, self.beat(member, self.epochs[member]))
            for wanted in self.under_way:
                self.ask(ShareStateInitialized(G, wanted.partitions))
            self.under_way.clear()
            self.driver.now_ms += 1
        if not self.epochs:
            return
        self.driver.now_ms += 30_000  # what nobody is at any more is tried again
        for _ in range(4):
            for member in list(self.epochs):
                self.hear(member, self.beat(member, self.epochs[member]))
            for wanted in self.under_way:
                self.ask(ShareStateInitialized(G, wanted.partitions))
            self.under_way.clear()
        written = len(self.driver.log)
        for member, epoch in self.epochs.items():
            assert self.beat(member, epoch).member_epoch == epoch
        assert len(self.driver.log) == written, "a heartbeat that changes nothing writes nothing"
        if self.epochs:
            self.everything_is_read()

    def everything_is_read(self) -> None:
        group = self.group
        assert group is not None
        live = {member for member in group.members if member in self.epochs}
        if live != group.members.keys():
            return  # somebody who has gone without a word still has a share
        assert all(member.epoch == group.epoch for member in group.members.values())
        wanted = {
            (self.id_of(name), index)
            for member in group.members.values()
            for name in member.topic_names
            for index in range(self.counts.get(name, 0))
        }
        had = {
            (topic, index)
            for member in group.members.values()
            for topic, indexes in member.assigned.items()
            for index in indexes
        }
        assert had == wanted

    # --- what must hold ---

    @invariant()
    def members_have_what_they_subscribe_to(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.assignment_epoch <= group.epoch
        for member in group.members.values():
            assert member.epoch <= group.assignment_epoch
            assert member.previous_epoch < member.epoch
            if self.epochs.get(member.member_id) == member.epoch and member.member_id in self.told:
                assert self.told[member.member_id] == member.assigned, "it was told something else"
        assert group.target.keys() <= group.members.keys()

    @invariant()
    def what_lasts_is_in_the_log(self) -> None:
        group, copy = self.group, self.replayed().groups.get(G)
        assert (group is None) == (copy is None)
        if group is not None:
            assert isinstance(copy, ShareGroup)
            assert durable(group) == durable(copy)


def durable(group: ShareGroup) -> object:
    return (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.members,
        group.target,
        group.state_partitions,
    )


TestShareGroups = ShareGroups.TestCase
TestShareGroups.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
