"""Members that join, sync, beat, commit, leave, fall silent and come twice, in any order.

What must hold whatever happens:
- nobody is answered twice, and nobody is left waiting once time has passed;
- in one generation, one partition is given to one member;
- a machine that only reads the log knows what the machine that wrote it knows to be durable.
"""

from dataclasses import dataclass
from typing import Any, cast

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.state_machines import Driver, replay_newest

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.classic.protocol import STABLE, ClassicGroup
from ottla.groups.classic.records import GroupDeleted
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    NO_MEMBER,
    Assignor,
    CommitOffsets,
    DeleteGroups,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Sync,
)
from ottla.groups.state_machine import GroupMachine
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, TopicName

G = GroupId("g")
PARTITIONS = 4
SESSION_MS = 10_000
REBALANCE_MS = 20_000
CLIENTS = st.integers(0, 4)
ASSIGNORS = st.lists(st.sampled_from(["range", "sticky"]), min_size=1, max_size=2, unique=True)


@dataclass
class Client:
    """What a client remembers between its requests."""

    instance: InstanceId | None
    member_id: MemberId = NO_MEMBER
    generation: int = -1
    leads: tuple[MemberId, ...] = ()


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = iter(range(1_000_000))
        self.config = GroupConfig(group_max_size=4, offsets_retention_minutes=1)
        self.driver = Driver(self.new_machine())
        self.driver.carry_out(self.driver.machine.loaded(self.driver.now_ms))
        self.clients = [Client(InstanceId(f"i{n}") if n < 2 else None) for n in range(5)]
        self.sent: dict[Request[Any], tuple[str, int]] = {}
        self.seen: set[Request[Any]] = set()
        self.given: dict[tuple[int, int, int], set[MemberId]] = {}
        """The members that each partition went to, by generation; a deleted group counts its generations anew."""

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.config, lambda: str(next(self.numbers)))

    def send(self, kind: str, client: int, request: Any) -> None:
        self.sent[request] = (kind, client)
        self.driver.send(request)
        self.read_replies()

    def read_replies(self) -> None:
        for request, values in self.driver.replies.items():
            assert len(values) == 1, f"{self.sent[request]} was answered {values}"
            if request not in self.seen:
                self.seen.add(request)
                self.read_reply(*self.sent[request], values[0])

    def read_reply(self, kind: str, number: int, reply: Any) -> None:
        client = self.clients[number]
        if kind == "join":
            if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = reply.member_id
            elif reply.error is ErrorCode.NONE:
                client.member_id, client.generation = reply.member_id, reply.generation
                client.leads = tuple(member.member_id for member in reply.members) if not reply.skip_assignment else ()
            elif reply.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.member_id, client.generation, client.leads = MemberId(""), -1, ()
        elif kind == "sync" and reply.error is ErrorCode.NONE:
            for partition in reply.assignment:
                event("a partition is assigned")
                deletions = sum(isinstance(record, GroupDeleted) for record in self.driver.log)
                self.given.setdefault((deletions, client.generation, partition), set()).add(client.member_id)

    # --- what clients do ---

    @rule(number=CLIENTS, names=ASSIGNORS)
    def joins(self, number: int, names: list[str]) -> None:
        client = self.clients[number]
        protocols = tuple(Assignor(name, b"\0\0\0\0\0\1\0\1t") for name in names)
        request = Join(G, client.member_id, client.instance, "c", "h", "consumer", protocols, SESSION_MS, REBALANCE_MS)
        self.send("join", number, request)

    @rule(some=st.sets(CLIENTS))
    def several_go_through_a_rebalance(self, some: set[int]) -> None:
        for number in some:
            self.joins(number, ["range"])
            self.joins(number, ["range"])
        self.time_passes(3_000)
        self.time_passes(3_000)
        for number in some:
            self.syncs(number)

    @rule(number=CLIENTS)
    def starts_afresh(self, number: int) -> None:
        """The process died: it knows its instance id, and nothing else."""
        self.clients[number] = Client(self.clients[number].instance)

    @rule(number=CLIENTS)
    def syncs(self, number: int) -> None:
        client = self.clients[number]
        shares: dict[MemberId, bytearray] = {}
        for partition in range(PARTITIONS):
            if client.leads:
                shares.setdefault(client.leads[partition % len(client.leads)], bytearray()).append(partition)
        assignments = {member: bytes(share) for member, share in shares.items()}
        request = Sync(G, client.member_id, client.instance, client.generation, assignments=assignments)
        self.send("sync", number, request)

    @rule(number=CLIENTS)
    def beats(self, number: int) -> None:
        client = self.clients[number]
        request = Heartbeat(G, client.member_id, client.instance, client.generation)
        self.send("heartbeat", number, request)

    @rule(number=CLIENTS, offset=st.integers(0, 9))
    def commits(self, number: int, offset: int) -> None:
        client = self.clients[number]
        wishes = (OffsetToCommit(TopicName("t"), PartitionId(number), offset),)
        self.send("commit", number, CommitOffsets(G, client.member_id, client.instance, client.generation, wishes))

    @rule(number=CLIENTS)
    def leaves(self, number: int) -> None:
        client = self.clients[number]
        request = Leave(G, (LeavingMember(client.member_id, client.instance),))
        self.send("leave", number, request)
        self.clients[number] = Client(client.instance)

    @rule()
    def an_administrator_deletes_the_group(self) -> None:
        self.send("delete", 0, DeleteGroups((G,)))

    @rule(ms=st.sampled_from([1, 3_000, SESSION_MS, REBALANCE_MS, 600_000]))
    def time_passes(self, ms: int) -> None:
        self.driver.pass_time(ms)
        self.read_replies()

    @rule()
    @precondition(lambda self: len(self.driver.log) > 0)
    def another_broker_takes_over(self) -> None:
        """The runtime refuses waiting requests; the successor knows the log."""
        self.seen |= self.sent.keys()
        successor = self.replayed()
        self.driver = Driver(successor, self.driver.now_ms, self.driver.log)
        self.driver.carry_out(successor.loaded(self.driver.now_ms))

    # --- what must hold ---

    @invariant()
    def a_partition_is_given_to_one_member(self) -> None:
        for (_, generation, partition), members in self.given.items():
            live = {self.renamed(member) for member in members}
            assert len(live) == 1, f"partition {partition} in generation {generation} is with {members}"

    def renamed(self, member: MemberId) -> str:
        """A static member that came back has another id and is the same owner."""
        return member.rsplit("-", 1)[0] if member.startswith("i") else member

    @invariant()
    def the_log_tells_it_all(self) -> None:
        successor = self.replayed()
        live = self.driver.machine
        assert successor.offsets.of_group(G) == live.offsets.of_group(G)
        group = cast(ClassicGroup | None, live.groups.get(G))
        assert durable(cast(ClassicGroup | None, successor.groups.get(G))) == durable(group)
        if group is not None and group.state is STABLE:
            replayed = cast(ClassicGroup, successor.groups[G])
            assert [*replayed.members] == [*group.members]
            assert shares(replayed) == shares(group)
            assert replayed.members.leader == group.members.leader

    def replayed(self) -> GroupMachine:
        machine = self.new_machine()
        replay_newest(machine, self.driver.log)
        return machine

    def teardown(self) -> None:
        self.driver.pass_time(600_000)
        self.read_replies()
        waiting = [self.sent[request] for request in self.sent.keys() - self.seen]
        assert not waiting, f"still waiting: {waiting}"
        group = self.driver.machine.groups.get(G)
        assert group is None or (not group.members and not group.pending)


def durable(group: ClassicGroup | None) -> Any:
    return None if group is None else group.record


def shares(group: ClassicGroup) -> dict[MemberId, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
