"""Fetches of a follower that has everything: they look at no partition until something happens to one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from unittest.mock import Mock
from uuid import UUID

import pytest
from tests.unit.replication.leader_and_follower import FOLLOWER, LEADER, TOPIC_ID, TP, Side, batch

from ottla.ids import PartitionId, TopicPartition
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.replication.decisions.in_sync import Follower
from ottla.replication.delayed import ParkedFetches, Wakings
from ottla.replication.environment import MANY_FOLLOWERS, REMEMBERED_CHANGES, LedChanges
from ottla.replication.partition import Partition
from ottla.replication.timeouts import Timeouts
from ottla.server.context import Deferred
from ottla.server.fetch_attempt import Parts
from ottla.server.fetch_sessions import FetchSessionCache
from ottla.server.handlers.fetch import handle
from ottla.server.settled_sessions import LOOK_AT_ALL_S
from ottla.slices import Slices
from ottla.testing.manual_clock import ManualClock

VERSION: Final = 17
EPOCH: Final = 9


class Leader:
    """A broker that leads partitions, as their follower's fetches see them."""

    def __init__(self, directory: Path, count: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.changes, wake = LedChanges(), Wakings(loop).wake
        self.sides = [
            Side(directory / str(number), LEADER, TopicPartition(TP.topic, PartitionId(number)), self.changes)
            for number in range(count)
        ]
        for side in self.sides:
            side.become(LEADER, 1)
            side.partition._wake = wake
        self.partition = self.sides[0].partition
        self.looked_at: list[int] = []
        """The partitions that were looked up."""
        self.now = 0.0
        clocked = Mock(wraps=loop, time=lambda: self.now)
        replicas = Mock(
            find=self._find,
            for_fetch=lambda topic, partition, *_, **__: self.sides[partition].partition,
            led_changes=self.changes,
            timeouts=Timeouts(loop),
            parked_fetches=ParkedFetches(loop),
        )
        self._parts = Parts(
            config=Mock(fetch_max_bytes=1 << 20),
            loop=clocked,
            metadata=Mock(),
            replicas=replicas,
            fetch_sessions=FetchSessionCache(),
            shared_answers=Mock(),
            cold_fetches=Mock(),
            memory=Mock(is_short=False),
            slices=Slices(ManualClock()),
            cluster=None,
        )
        self.session_id = 0
        self._session_epoch = 0
        self.context = Mock(access=None, metered=None, is_behind_others=False, api_version=VERSION)

    def _find(self, topic: UUID, partition: int) -> Partition:
        self.looked_at.append(partition)
        return self.sides[partition].partition

    def fetch(
        self,
        offset: int | None = None,
        wait_ms: int = 60_000,
        replica_epoch: int = EPOCH,
        *,
        partitions: Sequence[int] = (0,),
        without: Sequence[int] = (),
        max_bytes: int = 1 << 20,
    ) -> FetchResponse | Deferred[FetchResponse]:
        """A fetch of the follower; an offset is mentioned only where it has changed."""
        wanted = [
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=1000,
                current_leader_epoch=1,
                log_start_offset=0,
                last_fetched_epoch=1 if offset else -1,
            )
            for partition in partitions
            if offset is not None
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=replica_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(without))] if without else [],
            rack_id="",
        )
        answer = handle(self._parts, request, self.context)
        assert isinstance(answer, FetchResponse | Deferred)
        self._session_epoch += 1
        if isinstance(answer, FetchResponse):
            self.session_id = answer.session_id
        return answer

    def come_to_rest(self) -> None:
        """Open a session, and fetch until nothing is left to look at."""
        self.fetch(0, wait_ms=0, partitions=range(len(self.sides)))
        self.fetch(wait_ms=0)
        self.looked_at.clear()

    def follower(self, number: int = 0) -> Follower:
        """The state of the follower of a partition."""
        in_sync = self.sides[number].partition.in_sync
        assert in_sync is not None
        return in_sync.followers[FOLLOWER]


async def records(answer: FetchResponse | Deferred[FetchResponse]) -> list[int]:
    """The size of the records of each partition that the answer names, when it comes."""
    response = answer if isinstance(answer, FetchResponse) else await asyncio.wait_for(answer.future(), 60)
    return [len(data.records or b"") for topic in response.responses for data in topic.partitions]


def run(tmp_path: Path, check: Callable[[Leader], Awaitable[None]], count: int = 1) -> None:
    async def with_leader() -> None:
        leader = Leader(tmp_path, count)
        try:
            leader.come_to_rest()
            await check(leader)
        finally:
            for side in leader.sides:
                side.log.close()

    asyncio.run(with_leader())


def test_a_quiet_fetch_counts_for_all_partitions_without_a_look_at_them(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 3.0
        answer = leader.fetch(wait_ms=10)
        assert leader.looked_at == []
        assert leader.follower().last_fetch_at == 3.0
        assert await records(answer) == []  # its time was up
        assert leader.looked_at == []

    run(tmp_path, check)


def test_an_append_ends_the_quiet_and_is_answered_at_once(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch()
        data = batch()
        leader.partition.append(data)
        assert await records(answer) == [len(data)]
        leader.now = 2.0
        leader.fetch(1, wait_ms=0)
        assert leader.looked_at
        assert leader.partition.high_watermark == 1

    run(tmp_path, check)


def test_a_change_of_a_partition_of_others_is_looked_at_and_the_fetch_waits_on(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch()
        leader.changes.note_any()
        leader.partition._wake(leader.changes.waiting(FOLLOWER))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert leader.looked_at == [0]
        assert not leader.changes.waiting(FOLLOWER)
        leader.partition.append(batch())
        assert len(await records(answer)) == 1

    run(tmp_path, check)


@pytest.mark.parametrize("what", ["another epoch of the broker", "no right", "a change", "a long time", "no wait"])
def test_a_fetch_that_may_differ_from_the_last_looks_at_all_partitions(tmp_path: Path, what: str) -> None:
    async def check(leader: Leader) -> None:
        replica_epoch, wait_ms = EPOCH, 60_000
        if what == "another epoch of the broker":
            replica_epoch += 1
        elif what == "no right":
            leader.context.access = Mock(may_cluster=lambda _: False)
        elif what == "a change":
            leader.changes.note_any()
        elif what == "a long time":
            leader.now += LOOK_AT_ALL_S
        else:
            wait_ms = 0
        leader.fetch(wait_ms=wait_ms, replica_epoch=replica_epoch)
        assert not leader.changes.waiting(FOLLOWER)

    run(tmp_path, check)


def test_a_follower_that_is_not_looked_at_is_not_taken_for_one_that_follows(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 1.0
        quiet = leader.fetch()
        leader.partition.append(batch())
        await records(quiet)
        leader.now = 5.0
        leader.fetch(wait_ms=0)  # a fetch that does not say that it has the record
        assert leader.follower().caught_up_at == 1.0
        assert leader.partition.high_watermark == 0

    run(tmp_path, check)


def test_of_many_partitions_a_fetch_looks_at_those_that_have_changed(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch()
        data = batch()
        leader.sides[2].partition.append(data)
        assert await records(answer) == [len(data)]
        leader.now = 7.0
        leader.fetch(1, partitions=[2], wait_ms=0)  # the follower has the record: it is committed
        leader.fetch(wait_ms=0)  # the follower knows that
        assert set(leader.looked_at) == {2}
        leader.looked_at.clear()
        assert isinstance(leader.fetch(wait_ms=10), Deferred)
        assert leader.looked_at == []
        assert leader.sides[2].partition.high_watermark == 1

    run(tmp_path, check, count=5)


def test_partitions_that_are_not_looked_at_are_followed_and_those_that_lag_are_not_caught_up(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 1.0
        quiet = leader.fetch()
        leader.sides[2].partition.append(batch())
        await records(quiet)
        leader.now = 5.0
        leader.fetch(wait_ms=0)  # a fetch that does not say that it has the record
        assert leader.follower(2).caught_up_at == 1.0
        assert leader.follower(2).quiet is None
        for number in (0, 1, 3, 4):
            assert leader.follower(number).caught_up_at == 5.0

    run(tmp_path, check, count=5)


def test_a_partition_that_the_follower_leaves_out_is_not_followed(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 1.0
        leader.fetch(wait_ms=0)
        leader.now = 2.0
        leader.fetch(wait_ms=0, without=[2])
        leader.now = 3.0
        leader.fetch(wait_ms=0)
        assert leader.follower(2).last_fetch_at == 1.0
        assert leader.follower(1).last_fetch_at == 3.0

    run(tmp_path, check, count=5)


def test_partitions_with_more_than_fits_take_turns(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        busy, ends = (1, 4, 7), dict.fromkeys((1, 4, 7), 0)
        for number in busy:
            for _ in range(4):
                leader.sides[number].partition.append(batch(b"v" * 300))
        answer = leader.fetch(wait_ms=0, max_bytes=400)
        for _ in range(6):
            assert isinstance(answer, FetchResponse)
            [number] = (data.partition_index for topic in answer.responses for data in topic.partitions if data.records)
            ends[number] += 1
            answer = leader.fetch(ends[number], partitions=[number], wait_ms=0, max_bytes=400)
        assert ends == {1: 2, 4: 2, 7: 2}

    run(tmp_path, check, count=9)


def test_a_fetch_that_names_a_partition_waits_for_all_of_the_session(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch(0, partitions=[1])
        assert isinstance(answer, Deferred)
        assert set(leader.looked_at) == {1}
        data = batch()
        leader.sides[3].partition.append(data)
        assert await records(answer) == [len(data)]

    run(tmp_path, check, count=5)


def test_a_follower_is_woken_for_partitions_that_it_has(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        own, others = Mock(woken=False), Mock(woken=False)
        leader.changes.waiting(FOLLOWER)[own] = None
        leader.changes.waiting(FOLLOWER + 1)[others] = None
        leader.partition.append(batch())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        own.wake.assert_called_once_with()
        others.wake.assert_not_called()

    run(tmp_path, check)


def test_the_places_of_followers_that_went_are_given_up() -> None:
    changes = LedChanges()
    changes.waiting(1)[Mock()] = None
    for replica in range(10 * MANY_FOLLOWERS):
        changes.waiting(replica)
    assert len(changes._waiters) <= MANY_FOLLOWERS + 1
    assert changes.waiting(1)


def test_a_partition_that_joins_the_session_is_looked_at_until_it_is_known(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        new = Side(tmp_path / "new", LEADER, TopicPartition(TP.topic, PartitionId(5)), leader.changes)
        new.become(LEADER, 1)
        leader.sides.append(new)
        assert await records(leader.fetch(0, partitions=[5], wait_ms=0)) == [0]
        leader.fetch(wait_ms=0)
        assert set(leader.looked_at) == {5}
        leader.looked_at.clear()
        leader.fetch(wait_ms=10)
        assert leader.looked_at == []

    run(tmp_path, check, count=5)


def test_a_fetch_looks_at_all_partitions_when_too_much_has_changed_to_know_what(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        for _ in range(REMEMBERED_CHANGES + 1):
            leader.changes.note(leader.partition)
        leader.fetch(wait_ms=0)
        assert set(leader.looked_at) == {0, 1, 2}

    run(tmp_path, check, count=3)
