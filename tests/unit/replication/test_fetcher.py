"""What a follower makes of its leader's answers: real logs, and a leader that is a function."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config.broker import BrokerConfig
from ottla.config.log import LogConfig
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.protocol.messages import fetch
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.records.record import Record, encode_batch
from ottla.replication.fetcher import ReplicaFetchers
from ottla.replication.partition import Partition
from ottla.replication.surroundings import ReplicaSurroundings
from ottla.replication.throttles import Throttle
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("t"), PartitionId(0))
TOPIC_ID = TopicId(UUID(int=5))
LEADER, FOLLOWER = BrokerId(1), BrokerId(2)


def batch(value: bytes = b"v", count: int = 1) -> bytearray:
    return bytearray(encode_batch([Record(at, 1, None, value) for at in range(count)]))


class Side:
    """One replica, whose log is real."""

    def __init__(self, directory: Path, broker_id: BrokerId) -> None:
        self.log = PartitionLog.open(
            directory / str(broker_id), TP, LogConfig(), fs=RealFileSystem(), clock=ManualClock(), topic_id=TOPIC_ID
        )
        loop = asyncio.get_running_loop()
        surroundings = ReplicaSurroundings(broker_id, loop.time, 10.0, lambda: (LEADER, FOLLOWER), Mock())
        self.partition = Partition(TP, self.log, Mock(), Mock(), surroundings)

    def become(self, leader: BrokerId, epoch: int) -> None:
        replicas = (LEADER, FOLLOWER)
        state = PartitionImage(TP.partition, leader, LeaderEpoch(epoch), replicas, replicas, epoch)
        if leader == self.partition._surroundings.broker_id:
            self.partition.lead(state)
        else:
            self.partition.follow(state)

    def write(self, epoch: int, *values: bytes) -> None:
        """As leader of an epoch."""
        for value in values:
            self.log.append_as_leader(batch(value), LeaderEpoch(epoch))

    def contents(self) -> bytes:
        if self.log.log_start_offset == self.log.log_end_offset:
            return b""
        read = self.log.read_blocking(
            self.log.log_start_offset, 1 << 20, upper_bound=self.log.log_end_offset, min_one_message=True
        )
        return bytes(read.data)


class Pair:
    """A leader that answers from its log as genuine ones do, and a follower that copies it."""

    def __init__(self, directory: Path) -> None:
        self.leader = Side(directory, LEADER)
        self.follower = Side(directory, FOLLOWER)
        self.asked: list[fetch.FetchPartition] = []
        self.refusals: list[ErrorCode] = []
        self.open = asyncio.Event()
        """While it is not set, the leader answers nothing."""
        self.open.set()
        self.waits = False
        self.session_id = 11
        self.epoch = 0
        self.told: fetch.FetchPartition
        self.replaced: list[int] = []
        """The session that each full request says it replaces; 0 for none."""
        self.offset_refusals: list[ErrorCode] = []
        self.when_asked_for_offsets: Callable[[], object] = bool
        self.said: list[int] = []
        """How many topics were named in each request."""
        config = BrokerConfig({"node.id": str(FOLLOWER), "log.dirs": str(directory), "replica.fetch.backoff.ms": "50"})
        self.throttle = Throttle()
        self.started_over: list[str] = []
        self.fetchers = ReplicaFetchers(
            config,
            lambda broker: ("h", 1),
            lambda: 77,
            asyncio.get_running_loop(),
            connect=Mock(),
            throttle=self.throttle,
            start_over=lambda partition, reason: self.started_over.append(reason),
        )

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> Any:
        await asyncio.sleep(0.002)
        self.waits = not self.open.is_set()
        await self.open.wait()
        if isinstance(request, ListOffsetsRequest):
            wanted = request.topics[0].partitions[0].timestamp
            self.when_asked_for_offsets()
            found = Mock(error_code=self.offset_refusals.pop(0) if self.offset_refusals else 0)
            found.offset = self.leader.log.log_end_offset if wanted == -1 else self.leader.log.log_start_offset
            return Mock(topics=[Mock(partitions=[found])])
        assert request.replica_state.replica_id == FOLLOWER
        assert request.replica_state.replica_epoch == 77
        wanted = self._wanted(request)
        if isinstance(wanted, ErrorCode):
            return fetch.FetchResponse(error_code=wanted, responses=[])
        self.asked.append(wanted)
        data = fetch.PartitionData(
            partition_index=0,
            high_watermark=self.leader.log.high_watermark,
            log_start_offset=self.leader.log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        self._answer(wanted, data)
        answer = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        return fetch.FetchResponse(error_code=0, session_id=self.session_id, responses=[answer])

    def _wanted(self, request: fetch.FetchRequest) -> fetch.FetchPartition | ErrorCode:
        """What the session is about; it says only what has changed."""
        self.said.append(len(request.topics))
        if request.session_epoch == 0:
            self.replaced.append(request.session_id)
            self.epoch = 1
        elif request.session_id != self.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        else:
            assert request.session_epoch == self.epoch
            self.epoch += 1
        for topic in request.topics:
            assert topic.topic_id == TOPIC_ID
            (self.told,) = topic.partitions
        return self.told

    def _answer(self, wanted: fetch.FetchPartition, data: fetch.PartitionData) -> None:
        log = self.leader.log
        if self.refusals:
            data.error_code = self.refusals.pop(0)
            return
        if wanted.last_fetched_epoch >= 0:
            found = log.end_offset_for_epoch(LeaderEpoch(wanted.last_fetched_epoch))
            if found.epoch < 0:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return
            if found.epoch < wanted.last_fetched_epoch or found.end_offset < wanted.fetch_offset:
                data.diverging_epoch = fetch.EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
                return
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        if wanted.fetch_offset < log.log_end_offset:
            read = log.read_blocking(wanted.fetch_offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True)
            data.records = bytes(read.data)

    async def until_equal(self) -> None:
        for _ in range(500):
            if (
                self.follower.contents() == self.leader.contents()
                and self.follower.log.log_end_offset == self.leader.log.log_end_offset
            ):
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{self.follower.log} does not become {self.leader.log}")


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Pair], Awaitable[None]]) -> None:
    async def told() -> None:
        pair = Pair(tmp_path)
        client = Mock(host="h", port=1)
        client.ask = pair.ask
        monkeypatch.setattr("ottla.replication.fetcher.PeerClient", lambda *args, **more: client)
        try:
            await story(pair)
        finally:
            await pair.fetchers.close()
            pair.leader.log.close()
            pair.follower.log.close()

    asyncio.run(told())


def test_a_follower_copies_bytes_high_watermark_and_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a", b"b")
        pair.leader.log.high_watermark = Offset(1)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await asyncio.sleep(0.02)
        assert pair.follower.log.high_watermark == 1
        assert pair.follower.log.latest_epoch == 3
        assert (pair.asked[0].current_leader_epoch, pair.asked[0].last_fetched_epoch) == (3, -1)
        assert (pair.asked[-1].fetch_offset, pair.asked[-1].last_fetched_epoch) == (2, 3)

    run(tmp_path, monkeypatch, story)


def test_a_fetch_says_only_what_is_new_until_the_leader_has_forgotten_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await asyncio.sleep(0.05)
        assert pair.said[0] == 1
        assert pair.said[-1] == 0
        pair.session_id = 12
        requests = len(pair.said)
        await asyncio.sleep(0.05)
        assert pair.said[requests:].count(1) == 1
        pair.leader.write(3, b"b")
        await pair.until_equal()
        assert pair.replaced == [0, 0]

    run(tmp_path, monkeypatch, story)


def test_a_fetch_that_is_given_up_names_the_session_that_the_next_one_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader would else keep one more of its few places with every partition that comes."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        (fetcher,) = pair.fetchers._fetchers.values()
        pair.open.clear()  # a fetch waits at the leader now
        while not pair.waits:
            await asyncio.sleep(0.002)
        fetcher.add(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.01)
        pair.open.set()
        pair.leader.write(3, b"b")
        await pair.until_equal()
        assert pair.replaced == [0, 11]

    run(tmp_path, monkeypatch, story)


def test_a_leader_without_room_for_sessions_is_told_everything_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.session_id = 0
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.leader.write(3, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        await asyncio.sleep(0.03)
        assert set(pair.said) == {1}

    run(tmp_path, monkeypatch, story)


def test_what_the_leader_never_had_is_dropped_by_epochs_not_by_the_high_watermark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-101: the follower's high watermark is behind what is committed, and must not decide."""

    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a", b"b")  # on both, committed, but the follower has not heard so
        pair.follower.write(2, b"lost")
        pair.leader.become(LEADER, 3)
        pair.leader.write(3, b"c")
        pair.follower.become(LEADER, 3)
        assert pair.follower.log.high_watermark == 0
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert b"lost" not in pair.follower.contents()
        assert pair.asked[1].fetch_offset == 2

    run(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("allows_unclean", [False, True])
def test_what_is_committed_is_truncated_only_where_unclean_elections_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allows_unclean: bool
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 3)
        pair.leader.write(3, b"c")
        pair.follower.write(1, b"a", b"b")
        pair.follower.log.high_watermark = Offset(2)
        own = pair.follower.log
        own.update_config(dataclasses.replace(own.config, unclean_leader_election_enable=allows_unclean))
        pair.follower.become(LEADER, 3)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        if allows_unclean:
            await pair.until_equal()
            assert pair.started_over == []
            return
        while not pair.started_over:
            await asyncio.sleep(0.001)
        assert "below its own high watermark 2" in pair.started_over[0]
        assert (own.log_end_offset, own.high_watermark) == (2, 2)

    run(tmp_path, monkeypatch, story)


def test_what_parts_again_as_soon_as_it_is_copied_is_copied_again_only_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's epochs lack one that its records have."""

    async def story(pair: Pair) -> None:
        pair.leader.write(1, b"a")
        pair.leader.write(2, b"b")
        pair.leader.log.leader_epochs.truncate_end(Offset(1))
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        while sum(asked.fetch_offset == 2 for asked in pair.asked) < 5:
            await asyncio.sleep(0.001)
        assert loop.time() - began >= 3 * 0.05
        assert pair.started_over == []

    run(tmp_path, monkeypatch, story)


def test_logs_that_part_several_times_are_compared_epoch_by_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-279: fast failovers leave epochs that only one of the two knows."""

    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a")
        pair.leader.write(2, b"b", b"c")
        pair.follower.write(3, b"x")
        pair.leader.write(4, b"d")
        pair.follower.write(5, b"y", b"z")
        pair.leader.become(LEADER, 6)
        pair.follower.become(LEADER, 6)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert pair.follower.log.leader_epochs.entries() == [(1, 0), (2, 1), (4, 3)]

    run(tmp_path, monkeypatch, story)


def test_an_epoch_without_records_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        for side in (pair.leader, pair.follower):
            side.write(1, b"a")
        pair.follower.become(FOLLOWER, 2)  # led, and wrote nothing
        pair.leader.become(LEADER, 3)
        pair.follower.become(LEADER, 3)
        assert pair.follower.log.latest_epoch == 2
        pair.leader.write(3, b"b")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert pair.follower.log.leader_epochs.entries() == [(1, 0), (3, 1)]

    run(tmp_path, monkeypatch, story)


def test_a_follower_behind_the_leaders_start_begins_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, *(b"%d" % number for number in range(6)))
        pair.leader.log.high_watermark = Offset(6)
        pair.leader.log.delete_records_before(Offset(4))
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert (pair.follower.log.log_start_offset, pair.follower.log.log_end_offset) == (4, 6)

    run(tmp_path, monkeypatch, story)


def test_a_follower_begins_with_the_batch_in_the_midst_of_which_the_leader_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeleteRecords knows no batches."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        for _ in range(2):
            pair.leader.log.append_as_leader(batch(count=3), LeaderEpoch(1))
        pair.leader.log.high_watermark = Offset(6)
        pair.leader.log.delete_records_before(Offset(1))
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        assert (pair.follower.log.log_start_offset, pair.follower.log.log_end_offset) == (1, 6)

    run(tmp_path, monkeypatch, story)


def test_the_start_of_the_leaders_log_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a", b"b", b"c")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        pair.leader.log.high_watermark = Offset(3)
        pair.leader.log.delete_records_before(Offset(2))
        for _ in range(200):
            if pair.follower.log.log_start_offset == 2:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(pair.follower.log)

    run(tmp_path, monkeypatch, story)


def test_a_leader_that_has_deleted_all_that_could_be_compared_is_copied_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the follower has of an epoch that the leader has forgotten may never have been committed."""

    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.leader.become(LEADER, 2)
        pair.leader.write(2, b"b", b"c")
        pair.leader.log.high_watermark = Offset(3)
        pair.leader.log.delete_records_before(Offset(3))
        pair.follower.write(1, b"a", b"never", b"committed")
        pair.follower.become(LEADER, 2)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        for _ in range(200):
            if pair.follower.log.log_start_offset == 3:
                break
            await asyncio.sleep(0.005)
        assert pair.follower.log.size_bytes == 0, "nothing of it is left to come back after a crash"
        pair.leader.write(2, b"d")
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def parted(pair: Pair) -> None:
    """A follower of a leader that has nothing, and knows of no epoch."""
    pair.follower.become(LEADER, 1)
    pair.follower.write(1, b"a", b"b", b"c")
    pair.follower.become(LEADER, 3)


def test_a_leader_that_does_not_say_where_its_log_ends_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And holds up no other partition."""

    async def story(pair: Pair) -> None:
        parted(pair)
        pair.offset_refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)
    assert "broker 1 does not say where its log ends and begins: NOT_LEADER_OR_FOLLOWER" in caplog.text
    assert "nothing can be copied" not in caplog.text


def test_who_leads_before_the_answer_comes_keeps_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        parted(pair)
        pair.when_asked_for_offsets = lambda: pair.follower.become(FOLLOWER, 4)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.05)
        assert pair.follower.partition.leading
        assert pair.follower.log.log_end_offset == 3

    run(tmp_path, monkeypatch, story)


def test_errors_make_it_wait_longer_and_longer_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.refusals = [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID]
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)


def test_who_leads_by_now_copies_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()
        pair.follower.become(FOLLOWER, 2)
        pair.leader.write(1, b"of the past")
        await asyncio.sleep(0.05)
        assert pair.follower.log.log_end_offset == 1

    run(tmp_path, monkeypatch, story)


def test_nothing_is_followed_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pair: Pair) -> None:
        pair.follower.become(LEADER, 1)
        await pair.fetchers.close()
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.02)
        assert pair.asked == []

    run(tmp_path, monkeypatch, story)


def test_who_has_to_catch_up_is_held_back_and_who_is_in_sync_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(pair: Pair) -> None:
        monkeypatch.setattr("ottla.replication.fetcher.LONGEST_REST_S", 0.02)
        pair.throttle.set_partitions({TP.topic: None})
        pair.throttle.rate.change(1, asyncio.get_running_loop().time())
        pair.throttle.spend(TP, 1000, asyncio.get_running_loop().time())
        pair.leader.become(LEADER, 1)
        pair.follower.become(LEADER, 1)
        pair.leader.write(1, b"a")
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await pair.until_equal()  # the in-sync set has it
        pair.fetchers.stop(pair.follower.partition)
        pair.follower.partition.isr = (LEADER,)
        pair.leader.write(1, b"b")
        asked = len(pair.asked)
        pair.fetchers.follow(pair.follower.partition, TOPIC_ID)
        await asyncio.sleep(0.1)
        assert len(pair.asked) == asked
        pair.throttle.rate.change(1 << 20, asyncio.get_running_loop().time())
        await pair.until_equal()

    run(tmp_path, monkeypatch, story)
