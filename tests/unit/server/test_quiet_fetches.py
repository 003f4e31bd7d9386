"""Fetches of a follower that has everything: they look at no partition until something happens to one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from unittest.mock import Mock
from uuid import UUID

import pytest
from tests.unit.replication.leader_and_follower import FOLLOWER, LEADER, TOPIC_ID, Side, batch

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.replication.delayed import ParkedFetches, Wakings
from ottla.replication.partition import Partition
from ottla.replication.timeouts import Timeouts
from ottla.server.context import Deferred
from ottla.server.fetch_attempt import LOOK_AT_ALL_S, Parts
from ottla.server.fetch_sessions import FetchSessionCache
from ottla.server.handlers.fetch import handle
from ottla.slices import Slices
from ottla.testing.manual_clock import ManualClock

VERSION: Final = 17
EPOCH: Final = 9


class Leader:
    """A broker that leads one partition, as its follower's fetches see it."""

    def __init__(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        self.side = Side(directory, LEADER)
        self.side.become(LEADER, 1)
        self.partition = self.side.partition
        self.partition._wake = Wakings(loop).wake
        self.changes = self.partition._environment.led_changes
        self.looks = 0
        self.now = 0.0
        clocked = Mock(wraps=loop, time=lambda: self.now)
        replicas = Mock(
            find=self._find,
            for_fetch=lambda *_, **__: self.partition,
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
        self.looks += 1
        return self.partition

    def fetch(
        self, offset: int | None = None, wait_ms: int = 60_000, replica_epoch: int = EPOCH
    ) -> FetchResponse | Deferred[FetchResponse]:
        """A fetch of the follower; an offset is mentioned only where it has changed."""
        wanted = [] if offset is None else [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)]
        for each in wanted:
            each.current_leader_epoch, each.log_start_offset = 1, 0
            each.last_fetched_epoch = 1 if offset else -1
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=replica_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[],
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
        self.fetch(0, wait_ms=0)
        self.fetch(wait_ms=0)
        self.looks = 0

    @property
    def followed_at(self) -> float:
        assert self.partition.in_sync is not None
        return self.partition.in_sync.followers[FOLLOWER].last_fetch_at


async def records(answer: FetchResponse | Deferred[FetchResponse]) -> list[int]:
    """The size of the records of each partition that the answer names, when it comes."""
    response = answer if isinstance(answer, FetchResponse) else await asyncio.wait_for(answer.future(), 60)
    return [len(data.records or b"") for topic in response.responses for data in topic.partitions]


def run(tmp_path: Path, check: Callable[[Leader], Awaitable[None]]) -> None:
    async def with_leader() -> None:
        leader = Leader(tmp_path)
        try:
            leader.come_to_rest()
            await check(leader)
        finally:
            leader.side.log.close()

    asyncio.run(with_leader())


def test_a_quiet_fetch_counts_for_all_partitions_without_a_look_at_them(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 3.0
        answer = leader.fetch(wait_ms=10)
        assert leader.looks == 0
        assert leader.followed_at == 3.0
        assert await records(answer) == []  # its time was up
        assert leader.looks == 0

    run(tmp_path, check)


def test_an_append_ends_the_quiet_and_is_answered_at_once(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch()
        data = batch()
        leader.partition.append(data)
        assert await records(answer) == [len(data)]
        leader.now = 2.0
        leader.fetch(1, wait_ms=0)
        assert leader.looks > 0
        assert leader.partition.high_watermark == 1

    run(tmp_path, check)


def test_a_change_of_a_partition_of_others_is_looked_at_and_the_fetch_waits_on(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        answer = leader.fetch()
        leader.changes.count += 1
        leader.partition._wake(leader.changes.waiters)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert leader.looks == 1
        assert not leader.changes.waiters
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
            leader.changes.count += 1
        elif what == "a long time":
            leader.now += LOOK_AT_ALL_S
        else:
            wait_ms = 0
        leader.fetch(wait_ms=wait_ms, replica_epoch=replica_epoch)
        assert not leader.changes.waiters

    run(tmp_path, check)


def test_a_follower_that_is_not_looked_at_is_not_taken_for_one_that_follows(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        leader.now = 1.0
        quiet = leader.fetch()
        leader.partition.append(batch())
        await records(quiet)
        leader.now = 5.0
        leader.fetch(wait_ms=0)  # a fetch that does not say that it has the record
        in_sync = leader.partition.in_sync
        assert in_sync is not None
        assert in_sync.followers[FOLLOWER].caught_up_at == 1.0
        assert leader.partition.high_watermark == 0

    run(tmp_path, check)
