"""Random commits inside and outside of transactions, in any order, against plain dicts; a successor knows the same."""

from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.state_machine import Append, Reply
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.events import CommitOffsets, DeleteGroups, FetchOffsets, OffsetToCommit, TopicPartitions
from ottla.groups.state_machine import GroupMachine
from ottla.ids import GroupId, MemberId, PartitionId, ProducerIdAndEpoch, TopicName

T: Final = TopicName("t")
GROUPS: Final = ("a", "b")
PARTITIONS: Final = (0, 1, 2)

Place = tuple[str, int]
Value = tuple[int, int]
"""An offset, and where its commit stands in the log."""


class Offsets(RuleBasedStateMachine):
    """`log` is what a successor reads: records with their producer, and the ends of transactions."""

    @initialize()
    def start(self) -> None:
        self.machine = self.new_machine()
        self.log: list[Any] = []
        self.in_force: dict[Place, Value] = {}
        self.pending: dict[int, dict[Place, Value]] = {}

    def new_machine(self) -> GroupMachine:
        return GroupMachine(GroupConfig(), lambda: "1")

    def send(self, event: Any) -> Any:
        reply = None
        for effect in self.machine.handle(event, 1_000):
            if isinstance(effect, Append):
                producer_id = -1 if effect.producer is None else effect.producer.producer_id
                for record in effect.records:
                    self.machine.replay(record, len(self.log), producer_id)
                    self.log.append((record, producer_id))
            elif isinstance(effect, Reply):
                reply = effect.value
        return reply

    @rule(
        group=st.sampled_from(GROUPS),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True),
        offset=st.integers(0, 99),
        producer=st.none() | st.integers(1, 3),
    )
    def commit(self, group: str, partitions: list[int], offset: int, producer: int | None) -> None:
        position = len(self.log)
        wishes = tuple(OffsetToCommit(T, PartitionId(partition), offset) for partition in partitions)
        within = None if producer is None else ProducerIdAndEpoch(producer, 0)
        self.send(CommitOffsets(GroupId(group), MemberId(""), None, -1, wishes, producer=within))
        held = self.in_force if producer is None else self.pending.setdefault(producer, {})
        held.update({(group, part): (offset, position + number) for number, part in enumerate(partitions)})

    @rule(producer=st.integers(1, 3), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        """Also for producers that have nothing here, and twice."""
        self.machine.end_transaction(producer, committed=committed)
        self.log.append((producer, committed, None))
        for place, value in self.pending.pop(producer, {}).items():
            if committed and value[1] > self.in_force.get(place, (0, -1))[1]:
                self.in_force[place] = value

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        (error,) = self.send(DeleteGroups((GroupId(group),)))
        known = [place for held in (self.in_force, *self.pending.values()) for place in held if place[0] == group]
        assert error in ((ErrorCode.NONE,) if known else (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND))
        for held in (self.in_force, *self.pending.values()):
            for partition in PARTITIONS:
                held.pop((group, partition), None)

    @rule()
    def another_leads(self) -> None:
        self.machine = self.new_machine()
        for position, entry in enumerate(self.log):
            match entry:
                case (producer, committed, None):
                    self.machine.end_transaction(producer, committed=committed)
                case (record, producer_id):
                    self.machine.replay(record, position, producer_id)

    @invariant()
    def what_is_read_is_what_was_committed(self) -> None:
        for group in GROUPS:
            for stable in (False, True):
                topics = (TopicPartitions(T, tuple(map(PartitionId, PARTITIONS))),)
                (topic,) = self.send(FetchOffsets(GroupId(group), topics, stable)).topics
                for found in topic.offsets:
                    place = group, found.partition
                    unstable = stable and any(place in held for held in self.pending.values())
                    expected = -1 if unstable else self.in_force.get(place, (-1, 0))[0]
                    assert (found.offset, found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT) == (expected, unstable)


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
