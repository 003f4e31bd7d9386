"""A leader that is a function and a follower with a real log, for tests of copying."""

import asyncio
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
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.protocol.messages import fetch
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.records.record import Record, encode_batch
from ottla.replication.decisions.throttles import Throttle
from ottla.replication.environment import LedChanges, ReplicaEnvironment
from ottla.replication.fetchers import ReplicaFetchers
from ottla.replication.partition import Partition
from ottla.replication.throughput import Throughput
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("t"), PartitionId(0))
TOPIC_ID = TopicId(UUID(int=5))
LEADER, FOLLOWER = BrokerId(1), BrokerId(2)


def batch(value: bytes = b"v", count: int = 1) -> bytearray:
    return bytearray(encode_batch([Record(at, 1, None, value) for at in range(count)]))


class Side:
    """One replica, whose log is real."""

    def __init__(
        self, directory: Path, broker_id: BrokerId, at: TopicPartition = TP, changes: LedChanges | None = None
    ) -> None:
        self.log = PartitionLog.open(
            directory / str(broker_id), at, LogConfig(), fs=RealFileSystem(), clock=ManualClock(), topic_id=TOPIC_ID
        )
        loop = asyncio.get_running_loop()
        environment = ReplicaEnvironment(
            broker_id, loop.time, 10.0, lambda: (LEADER, FOLLOWER), Mock(), changes or LedChanges()
        )
        self.syncs = True
        flusher = Mock(mark=lambda partition: partition.log.flush() if self.syncs else None)
        self.partition = Partition(at, self.log, flusher, Mock(), environment, Throughput())

    def become(self, leader: BrokerId, epoch: int) -> None:
        replicas = (LEADER, FOLLOWER)
        state = PartitionImage(
            self.partition.topic_partition.partition, leader, LeaderEpoch(epoch), replicas, replicas, epoch
        )
        if leader == self.partition._environment.broker_id:
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
        self.has_news = True
        """While it is not set, answers name no partition."""
        self.session_id = 11
        self.epoch = 0
        self.told: fetch.FetchPartition
        self.replaced: list[int] = []
        """The session that each full request says it replaces; 0 for none."""
        self.offset_refusals: list[ErrorCode] = []
        self.when_asked_for_offsets: Callable[[], object] = bool
        self.epochs_asked: list[int] = []
        """Each epoch whose end was asked for."""
        self.waits_ms: list[int] = []
        """How long each request may wait at the leader."""
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
            timestamp = request.topics[0].partitions[0].timestamp
            self.when_asked_for_offsets()
            found = Mock(error_code=self.offset_refusals.pop(0) if self.offset_refusals else 0)
            found.offset = self.leader.log.log_end_offset if timestamp == -1 else self.leader.log.log_start_offset
            return Mock(topics=[Mock(partitions=[found])])
        if isinstance(request, OffsetForLeaderEpochRequest):
            epoch = request.topics[0].partitions[0].leader_epoch
            self.epochs_asked.append(epoch)
            self.when_asked_for_offsets()
            end = self.leader.log.end_offset_for_epoch(LeaderEpoch(epoch))
            ended = EpochEndOffset(partition=0, leader_epoch=end.epoch, end_offset=end.end_offset)
            ended.error_code = self.offset_refusals.pop(0) if self.offset_refusals else 0
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TP.topic, partitions=[ended])])
        assert request.replica_state.replica_id == FOLLOWER
        assert request.replica_state.replica_epoch == 77
        self.waits_ms.append(request.max_wait_ms)
        wanted = self._wanted(request)
        if isinstance(wanted, ErrorCode):
            return fetch.FetchResponse(error_code=wanted, responses=[])
        self.asked.append(wanted)
        if not self.has_news:
            return fetch.FetchResponse(error_code=0, session_id=self.session_id, responses=[])
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
        for _ in range(4_000):
            if (
                self.follower.contents() == self.leader.contents()
                and self.follower.log.log_end_offset == self.leader.log.log_end_offset
            ):
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{self.follower.log} does not become {self.leader.log}")


async def eventually_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Pair], Awaitable[None]]) -> None:
    async def told() -> None:
        pair = Pair(tmp_path)
        client = Mock(host="h", port=1)
        client.ask = pair.ask
        monkeypatch.setattr("ottla.replication.fetcher.AsyncConnection", lambda *args, **more: client)
        try:
            await story(pair)
        finally:
            await pair.fetchers.close()
            pair.leader.log.close()
            pair.follower.log.close()

    asyncio.run(told())
