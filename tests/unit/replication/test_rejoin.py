"""A broker that led many partitions comes back and truncates them all: once per directory for what can be shared, in
short turns of the loop, and without a record too many."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config.broker import BrokerConfig
from ottla.config.log import LogConfig
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.closing import sync_together
from ottla.log.directories import LogDirectories
from ottla.log.directory_checkpoints import RECOVERY_POINTS
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.protocol.messages import fetch
from ottla.records.record import Record, encode_batch
from ottla.replication.decisions.throttles import Throttle
from ottla.replication.environment import LedChanges, ReplicaEnvironment
from ottla.replication.fetchers import ReplicaFetchers
from ottla.replication.partition import Partition
from ottla.replication.throughput import Throughput
from ottla.testing.manual_clock import ManualClock

TOPIC_ID: Final = TopicId(UUID(int=5))
LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
PARTITIONS: Final = 200
COMMITTED: Final = 3
STALL_S: Final = 0.05


class CountingFileSystem(RealFileSystem):
    """The machine's, in which checkpoints are counted."""

    checkpoints = 0

    def rename(self, source: str, target: str) -> None:
        self.checkpoints += target.endswith(RECOVERY_POINTS)
        super().rename(source, target)


def batch(sequence: int) -> bytearray:
    records = [Record(0, 1, None, b"value")]
    return bytearray(encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence))


async def longest_turn_s(until: "asyncio.Task[Any]") -> float:
    """The most processor time that the loop's thread has taken without coming back."""
    longest = 0.0
    while not until.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    return longest


async def rejoin(directory: Path, partitions: int, kept: int) -> tuple[CountingFileSystem, float, list[PartitionLog]]:
    """Each of so many logs has one synced record more than the leader, or nothing in common with it."""
    fs, clock, loop = CountingFileSystem(), ManualClock(), asyncio.get_running_loop()
    directories = LogDirectories([directory], fs=fs, clock=clock)
    directories.acquire(cluster_id="c", node_id=FOLLOWER)
    directories.load_all(lambda _: LogConfig())
    environment = ReplicaEnvironment(FOLLOWER, loop.time, 10.0, lambda: (LEADER, FOLLOWER), Mock(), LedChanges())
    config = BrokerConfig({"node.id": str(FOLLOWER), "log.dirs": str(directory)})
    fetchers = ReplicaFetchers(
        config, lambda broker: ("h", 1), lambda: 77, loop, connect=Mock(), throttle=Throttle(), start_over=Mock()
    )
    logs = []
    replicas = (LEADER, FOLLOWER)
    for number in range(partitions):
        tp = TopicPartition(TopicName("t"), PartitionId(number))
        log = directories.create_log(tp, TOPIC_ID, LogConfig())
        for sequence in range(COMMITTED + 1):
            log.append_as_leader(batch(sequence), LeaderEpoch(0))
        logs.append(log)
    tickets = [(log, ticket) for log in logs if (ticket := log.prepare_flush())]
    sync_together([ticket for _, ticket in tickets], fs, str(directories.directories[0].path))
    for log, ticket in tickets:
        log.flushed(ticket)
    directories.directories[0].prepare_checkpoints().write()
    fs.checkpoints = 0
    has_answered, done = False, asyncio.Event()

    async def ask(request: Any, version: int, *, timeout_s: float) -> Any:
        nonlocal has_answered
        if has_answered:
            done.set()
            await asyncio.sleep(60)
        has_answered = True
        parted = fetch.EpochEndOffset(epoch=0, end_offset=kept)
        parts = [
            fetch.PartitionData(
                partition_index=number,
                high_watermark=kept,
                log_start_offset=0,
                aborted_transactions=None,
                records=b"",
                diverging_epoch=parted,
            )
            for number in range(partitions)
        ]
        topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)
        return fetch.FetchResponse(error_code=0, session_id=3, responses=[topic])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ottla.replication.fetcher.AsyncConnection", lambda *_, **__: Mock(ask=ask, host="h", port=1))
        for log in logs:
            flusher = Mock(mark=lambda partition: setattr(partition.log._durability, "is_cut_synced", True))
            partition = Partition(log.topic_partition, log, flusher, Mock(), environment, Throughput())
            state = PartitionImage(log.topic_partition.partition, LEADER, LeaderEpoch(1), replicas, replicas, 1)
            partition.follow(state)
            fetchers.follow(partition, TOPIC_ID)
        waiting = loop.create_task(done.wait())
        longest_s = await asyncio.wait_for(longest_turn_s(waiting), 60)
        await fetchers.close()
    return fs, longest_s, logs


@pytest.mark.parametrize("kept", [COMMITTED, 0])
def test_many_logs_are_truncated_together(tmp_path: Path, kept: int) -> None:
    longest_s = 1.0
    for attempt in range(3):  # the collector, or a machine that is busy, may make one turn long
        fs, seen_s, logs = asyncio.run(rejoin(tmp_path / str(attempt), PARTITIONS, kept))
        longest_s = min(longest_s, seen_s)
        assert fs.checkpoints == 1
        for log in logs:
            assert log.log_end_offset == kept
            assert not log.has_stale_producers
            assert [entry.last_sequence for entry in log.producer_state.producers.values()] == [kept - 1] * (kept > 0)
        if longest_s < STALL_S:
            break
    assert longest_s < STALL_S
