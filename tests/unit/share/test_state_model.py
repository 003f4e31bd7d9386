"""Share partitions initialized, written, read, deleted and snapshot in any order, with leaders that come late.

What must hold whatever happens:
- an answer is what was written, offset by offset, without writes of a past epoch;
- a machine that reads the log from where it is needed knows what the machine that wrote it knows.
"""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.state_machines import Driver

from ottla.errors import ErrorCode
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.share.state import DeliveryState, SharePartitionKey, StateBatch
from ottla.share.state_events import (
    DeleteState,
    ForgetTopics,
    InitializeState,
    ReadState,
    ShareStateConfig,
    SummarizeState,
    WriteState,
)
from ottla.share.state_machine import ShareStateMachine

TOPICS = [TopicId(UUID(int=number)) for number in (1, 2)]
KEYS = [SharePartitionKey(GroupId("g"), topic, PartitionId(0)) for topic in TOPICS]
INTERVAL_MS = 1_000
NUMBERS = st.integers(0, 3)
BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 20),
        st.integers(0, 5),
        st.sampled_from(list(DeliveryState)),
        st.integers(1, 3),
    ),
    max_size=3,
)


class Twin:
    """A share partition, offset by offset."""

    def __init__(self, state_epoch: int, start: int, fence: int) -> None:
        self.state_epoch, self.start, self.fence = state_epoch, start, fence
        self.offsets: dict[int, tuple[int, int]] = {}

    def write(self, start: int, batches: list[StateBatch]) -> None:
        self.start = self.start if start == -1 else start
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                known = self.offsets.get(offset, (0, 0))
                self.offsets[offset] = max(known, (batch.delivery_count, batch.delivery_state))
        self.offsets = {offset: state for offset, state in self.offsets.items() if offset >= self.start}


class ShareStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(self.new_machine())
        self.driver.carry_out(self.driver.machine.loaded(self.driver.now_ms))
        self.twins: dict[SharePartitionKey, Twin] = {}
        self.numbers = iter(range(1_000_000))

    def new_machine(self) -> ShareStateMachine:
        return ShareStateMachine(ShareStateConfig(2, INTERVAL_MS), lambda topic, partition: True)

    def error_of(self, event: InitializeState | ReadState | WriteState | DeleteState) -> ErrorCode:
        self.driver.send(event)
        error: ErrorCode = self.driver.reply(event).error
        return error

    @rule(key=st.sampled_from(KEYS), epoch=NUMBERS, start=st.integers(-1, 10))
    def initializes(self, key: SharePartitionKey, epoch: int, start: int) -> None:
        twin = self.twins.get(key)
        error = self.error_of(InitializeState(key, epoch, start))
        if twin is not None and epoch < twin.state_epoch:
            assert error is ErrorCode.FENCED_STATE_EPOCH
        else:
            assert error is ErrorCode.NONE
            self.twins[key] = Twin(epoch, start, 0 if twin is None else twin.fence)

    @rule(
        key=st.sampled_from(KEYS),
        epoch=st.integers(-1, 3),
        leader=st.integers(-1, 3),
        start=st.integers(-1, 20),
        batches=BATCHES,
    )
    def writes(self, key: SharePartitionKey, epoch: int, leader: int, start: int, batches: list[StateBatch]) -> None:
        twin = self.twins.get(key)
        error = self.error_of(WriteState(key, epoch, leader, start, tuple(batches)))
        if twin is None:
            assert error is ErrorCode.INVALID_REQUEST
        elif -1 < leader < twin.fence:
            assert error is ErrorCode.FENCED_LEADER_EPOCH
        elif -1 < epoch < twin.state_epoch:
            assert error is ErrorCode.FENCED_STATE_EPOCH
        else:
            assert error is ErrorCode.NONE
            twin.write(start, batches)

    @rule(key=st.sampled_from(KEYS), says_epochs=st.booleans(), start=st.integers(-1, 20), batches=BATCHES)
    def its_leader_goes_on(
        self, key: SharePartitionKey, says_epochs: bool, start: int, batches: list[StateBatch]
    ) -> None:
        if key not in self.twins:
            self.initializes(key, 0, 0)
        twin = self.twins[key]
        epochs = (twin.state_epoch, twin.fence) if says_epochs else (-1, -1)
        self.writes(key, *epochs, start, batches)

    @rule(key=st.sampled_from(KEYS), leader=NUMBERS)
    def reads(self, key: SharePartitionKey, leader: int) -> None:
        twin = self.twins.get(key)
        error = self.error_of(ReadState(key, leader))
        if twin is None:
            assert error is ErrorCode.INVALID_REQUEST
        elif leader < twin.fence:
            assert error is ErrorCode.FENCED_LEADER_EPOCH
        else:
            assert error is ErrorCode.NONE
            twin.fence = leader

    @rule(key=st.sampled_from(KEYS))
    def deletes(self, key: SharePartitionKey) -> None:
        assert self.error_of(DeleteState(key)) is ErrorCode.NONE
        self.twins.pop(key, None)

    @rule(topic=st.sampled_from(TOPICS))
    def forgets(self, topic: TopicId) -> None:
        self.driver.send(ForgetTopics(frozenset({topic})), next(self.numbers))
        self.twins = {key: twin for key, twin in self.twins.items() if key.topic_id != topic}

    @rule()
    def time_passes(self) -> None:
        self.driver.pass_time(INTERVAL_MS)

    @rule()
    def another_takes_over(self) -> None:
        """It reads the log from where it is needed, and does not know of leaders that were before the last snapshot."""
        needed = self.driver.machine.needed_from() or 0
        machine = self.new_machine()
        for position in range(needed, len(self.driver.log)):
            machine.replay(self.driver.log[position], position, -1)
        self.driver.machine = machine
        self.driver.timers.clear()
        self.driver.carry_out(machine.loaded(self.driver.now_ms))
        for key, twin in self.twins.items():
            fence = self.fence_told(key)
            assert fence == twin.fence or (needed and fence < twin.fence)
            twin.fence = fence

    def fence_told(self, key: SharePartitionKey) -> int:
        """The lowest leader epoch that may write: asked of a copy, with writes that change nothing else."""
        return next(
            epoch
            for epoch in range(10)
            if not any(
                effect.value.error is ErrorCode.FENCED_LEADER_EPOCH
                for effect in self.driver.machine.handle(WriteState(key, -1, epoch, -1), self.driver.now_ms)
                if hasattr(effect, "value")
            )
        )

    @invariant()
    def what_is_told_was_written(self) -> None:
        for key in KEYS:
            summary = self.driver.ask(SummarizeState(key))
            twin = self.twins.get(key)
            assert summary.start_offset == (-1 if twin is None else twin.start)
            if twin is None:
                continue
            assert summary.state_epoch == twin.state_epoch
            told = self.driver.machine.handle(ReadState(key, 9), self.driver.now_ms)[-1].value.state
            assert {
                offset: (batch.delivery_count, batch.delivery_state)
                for batch in told.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            } == twin.offsets


TestShareStates = ShareStates.TestCase
TestShareStates.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
