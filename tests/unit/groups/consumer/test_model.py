"""Members of a consumer group that join, beat, give up, take, lie, leave, fall silent and come back, in any order, with
topics that come and go, classic members among them, and brokers that take over.

What must hold whatever happens:
- a partition is with one member at a time: with nobody else until its last owner has said that it has given it up;
- a machine that only reads the log, compacted or not, knows what the machine that wrote it knows to be durable;
- when everybody is left alone for a while, every partition is with exactly one member, and the group is stable.
"""

from collections import Counter
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.classic_members import Classic, settle_all
from tests.support.consumer_members import Consumer, G, World
from tests.support.state_machines import Driver, replay_newest

from ottla.errors import ErrorCode
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.events import DeleteGroups, Leave, LeavingMember
from ottla.groups.records import GroupRecordFormat
from ottla.groups.state_machine import GroupMachine
from ottla.ids import InstanceId, MemberId, TopicName

MEMBERS = st.integers(0, 4)
STATIC = 2
"""So many of the members have an instance id."""
SIZES = st.sampled_from([{"t": 3, "u": 2}, {"t": 5, "u": 2}, {"t": 3}, {"t": 3, "u": 2, "t2": 2}, {"u": 4}])
ACTIONS = ["leaves", "leaves for a while", "dies", "reads other topics", "uses another expression"]
SUBSCRIPTIONS = st.sampled_from([("t",), ("u",), ("t", "u"), ()])
EXPRESSIONS = {"t.*": "t", "u|t": "ut"}
REGEXES = st.sampled_from(["", *EXPRESSIONS])


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World({"t": 3, "u": 2}, group_consumer_max_size=4)
        self.names = iter(range(1_000_000))
        self.consumers = [self.fresh(number) for number in range(5)]
        self.classic = [Classic(self.world, instance=None if number else "i0") for number in range(2)]

    def fresh(self, number: int) -> Consumer:
        """A process that has just been started."""
        instance = f"i{number}" if number < STATIC else None
        return Consumer(self.world, f"m{number}-{next(self.names)}", instance=instance)

    def follow(self, consumer: Consumer, error: ErrorCode) -> None:
        """What a client does about an error: begin anew. Whoever is fenced has to take another id for that, as long as
        its old one is known."""
        event(f"a member gets {error.name}")
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            consumer.epoch, consumer.has, consumer.to_have = 0, {}, {}
        elif error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID):
            number = self.consumers.index(consumer)
            self.consumers[number] = self.fresh(number)

    # Few rules with many actions each: a run in which the members do not beat shows nothing.

    @initialize(some=st.sets(MEMBERS, min_size=2))
    def several_join(self, some: set[int]) -> None:
        for number in sorted(some):
            self.join(number, ("t", "u"), None)

    @rule(beats=st.lists(st.tuples(MEMBERS, st.sampled_from(["takes", "keeps", "repeats"])), min_size=1, max_size=12))
    def several_beat(self, beats: list[tuple[int, str]]) -> None:
        """Members take and give up what they were told to, or are still at it, or send the same again because they
        have had no answer."""
        for number, how in beats:
            consumer = self.consumers[number]
            epoch, to_have = consumer.epoch, consumer.to_have
            if epoch <= 0:
                continue
            beat = consumer.beat() if how == "takes" else consumer.send(owned=consumer.has)
            if how == "repeats":
                consumer.epoch, consumer.to_have, consumer.is_unsure = epoch, to_have, True
            self.follow(consumer, beat.error)

    @rule(
        number=MEMBERS, action=st.sampled_from(ACTIONS), topics=SUBSCRIPTIONS, regex=st.sampled_from(["", *EXPRESSIONS])
    )
    def one_does_something(self, number: int, action: str, topics: tuple[str, ...], regex: str) -> None:
        consumer = self.consumers[number]
        if action == "leaves" or (action == "leaves for a while" and number < STATIC):
            consumer.leave(-1 if action == "leaves" else -2)
            self.consumers[number] = self.fresh(number)
        elif action == "dies":
            self.consumers[number] = self.fresh(number)
        elif consumer.epoch == 0:
            self.join(number, topics, regex or None)
        elif action == "reads other topics":
            consumer.topics = frozenset(map(TopicName, topics))
            self.follow(consumer, consumer.send(topic_names=consumer.topics, owned=consumer.has).error)
        else:
            self.follow(consumer, consumer.send(topic_regex=regex, owned=consumer.has).error)

    @rule(number=st.integers(0, 1), action=st.sampled_from(["joins", "follows", "leaves"]))
    def a_classic_member_does_something(self, number: int, action: str) -> None:
        member = self.classic[number]
        if action == "joins":
            member.join_soon()
        elif action == "follows":
            member.follow()
        else:
            self.world.ask(Leave(G, (LeavingMember(member.member_id, member.instance),)))
            self.classic[number] = Classic(self.world, instance=member.instance)

    @rule(sizes=SIZES)
    def topics_change(self, sizes: dict[str, int]) -> None:
        self.world.change_topics(sizes, "t", "u", "t2")
        names = list(self.world.topic_names.values())
        self.world.resolve(
            **{regex: [name for name in names if name[0] in first] for regex, first in EXPRESSIONS.items()}
        )

    @rule(ms=st.sampled_from([1, 3_000, 20_000, 45_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.world.driver.pass_time(ms)

    @rule(action=st.sampled_from(["remove", "delete", "take over", "take over", "compact", "compact"]))
    def somebody_else_does_something(self, action: str) -> None:
        if action == "remove":
            self.world.ask(Leave(G, (LeavingMember(MemberId(""), InstanceId("i1")),)))
        elif action == "delete":
            self.world.ask(DeleteGroups((G,)))
        elif action == "take over":
            self.world.restart()
            for member in self.classic:
                member.forget_requests()
        else:
            self.compact()

    def join(self, number: int, topics: tuple[str, ...], regex: str | None) -> None:
        consumer = self.consumers[number]
        consumer.topics = frozenset(map(TopicName, topics))
        consumer.regex = regex
        self.follow(consumer, consumer.join().error)

    def compact(self) -> None:
        """Keep the last record of each key, tombstones included."""
        by_key = {GroupRecordFormat().encode(record)[0]: record for record in self.world.driver.log}
        last = {id(record) for record in by_key.values()}
        self.world.driver.log[:] = [record for record in self.world.driver.log if id(record) in last]

    # --- what must hold ---

    @invariant()
    def a_partition_is_with_one_member(self) -> None:
        group = self.world.machine.groups.get(G)
        if not isinstance(group, ConsumerGroup):
            return
        owners: Counter[tuple[Any, int]] = Counter()
        for member in group.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                owners.update((topic, index) for topic, indexes in partitions.items() for index in indexes)
        shared = [partition for partition, count in owners.items() if count > 1]
        assert not shared, f"with several members: {shared}"
        for consumer in self.consumers:
            known = group.members.get(consumer.member_id)
            if known is None or known.epoch != consumer.epoch:
                continue
            for topic, indexes in consumer.has.items():
                server = known.assigned.get(topic, frozenset()) | known.pending_revocation.get(topic, frozenset())
                assert indexes <= server, f"{consumer.member_id} reads what others may be given"

    @invariant()
    def the_log_tells_it_all(self) -> None:
        known = durable(self.world.machine)
        assert durable(self.replayed(self.world.driver.log)) == known
        successor = self.world.new_machine()
        replay_newest(successor, self.world.driver.log)
        assert durable(successor) == known

    def replayed(self, log: list[Any]) -> GroupMachine:
        driver = Driver(self.world.new_machine())
        for position, record in enumerate(log):
            driver.machine.replay(record, position, -1)
        machine: GroupMachine = driver.machine
        return machine

    def teardown(self) -> None:
        """Everybody of the new protocol joins, and is left alone; the others stay away."""
        self.world.driver.pass_time(120_000)
        group = self.world.machine.groups.get(G)
        assert group is None or group.is_empty
        consumers = [self.fresh(number) for number in range(4)]
        self.world.change_topics({"t": 5, "u": 2}, "t", "u", "t2")
        for consumer in consumers:
            assert consumer.join().error is ErrorCode.NONE
        settle_all(*consumers)
        assert self.world.describe().state == "Stable"
        assert Counter(name for consumer in consumers for name in consumer.partitions) == Counter(
            f"t-{index}" for index in range(5)
        )


def durable(machine: GroupMachine) -> Any:
    """What a successor has to know of the group."""
    group = machine.groups.get(G)
    if group is None:
        return None
    if not isinstance(group, ConsumerGroup):
        return getattr(group, "record", None)
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.metadata_hash,
        group.members,
        group.static_members,
        group.target,
        group.resolutions,
        group.regexes,
        group._owners,
    )


Members.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestMembers = Members.TestCase
