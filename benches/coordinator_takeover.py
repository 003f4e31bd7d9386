"""How long a group coordinator takes over a partition of `__consumer_offsets`, and how long it holds the event loop.

`python -m benches.coordinator_takeover --commits 5000000` prints one line of JSON. A follower's replica gets that many
commits, as a leader would send them, and is compacted meanwhile by the broker's own code; then it is led. How many
commits there were makes no difference but for the time it takes to write them: compaction bounds what is left.
`--uncompacted` leaves compaction out, which is what a follower had before it compacted by itself.
"""

import argparse
import asyncio
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

from ottla.clock import SystemClock
from ottla.collector import collect_quickly
from ottla.config.log import LogConfig
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.groups.config import GroupConfig
from ottla.groups.offsets.records import OffsetCommitted
from ottla.groups.records import GroupRecordFormat
from ottla.groups.state_machine import GroupMachine
from ottla.ids import BrokerId, GroupId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.fs import RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import Buffer
from ottla.records.record import Record, encode_batch
from ottla.replication.compaction import Compaction
from ottla.replication.own_records import read_chunk

PLACE: Final = TopicPartition(TopicName("__consumer_offsets"), PartitionId(0))
CONFIG: Final = LogConfig(compact=True, delete=False, segment_bytes=100 << 20)
"""As Kafka creates the topic."""
COMMITS_PER_BATCH: Final = 10
BYTES_PER_ROUND: Final = 4 << 20
"""Appended between two looks of the compaction: a second of some 70,000 commits."""


class Settings:
    """What compaction asks of the broker's settings: Kafka's defaults."""

    log_cleaner_enable = True
    log_cleaner_backoff_ms = 15_000
    log_cleaner_dedupe_buffer_size = 128 << 20
    log_cleaner_io_buffer_size = 512 << 10
    log_cleaner_io_max_bytes_per_second = 1e300


class Follower:
    """The replica, where compaction looks for it, and where the coordinator reads it."""

    def __init__(self, path: Path) -> None:
        self.topic_partition = PLACE
        self.directories = LogDirectories([path], fs=RealFileSystem(), clock=SystemClock())
        self.directories.acquire(cluster_id="bench", node_id=BrokerId(1))
        self.log: PartitionLog = self.directories.create_log(PLACE, None, CONFIG)
        self._threads = ThreadPoolExecutor(4)

    def partitions(self) -> list["Follower"]:
        """The one replica, as a replica manager lists its own."""
        return [self]

    def mark_dirty(self) -> None:
        """Sync at once."""
        self.log.flush()

    async def fill(self, commits: int, groups: int, partitions: int, *, compacted: bool) -> None:
        """Append commits as they come from a leader."""
        loop = asyncio.get_running_loop()
        compaction = Compaction(cast(Any, Settings), cast(Any, self), self.directories, loop, SystemClock())
        batches = commit_batches(groups, partitions)
        appended = 0
        for _ in range(-(-commits // COMMITS_PER_BATCH)):
            batch = bytearray(next(batches))
            batch[:8] = self.log.log_end_offset.to_bytes(8, "big")
            appended += self.log.append_as_follower(batch).size_bytes
            if appended >= BYTES_PER_ROUND:
                appended = 0
                self.log.high_watermark = self.log.log_end_offset
                if compacted:
                    await compaction.compact_dirtiest()
        self.log.high_watermark = self.log.log_end_offset
        await compaction.close()

    async def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        """As `ReplicaManager.read_all`."""
        loop, offset = asyncio.get_running_loop(), self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data, offset = await loop.run_in_executor(
                self._threads, read_chunk, self.log, Offset(offset), self.log.log_end_offset
            )
            yield data

    async def append_committed(self, partition: PartitionId, batches: bytearray) -> object:
        """Nothing is written here."""
        raise NotImplementedError

    def producer(self, partition: PartitionId, producer_id: int) -> None:
        """Nobody writes in transactions here."""


def commit_batches(groups: int, partitions: int) -> Iterator[bytes]:
    """Batches of commits by random groups, over and over; their base offsets are to be set."""
    chance = random.Random(1)
    now_ms = int(time.time() * 1000)
    encode = GroupRecordFormat().encode
    made = []
    for number in range(20_000):
        records = []
        for place in range(COMMITS_PER_BATCH):
            commit = OffsetCommitted(
                GroupId(f"group-{chance.randrange(groups)}"),
                TopicName("orders"),
                PartitionId(chance.randrange(partitions)),
                number * COMMITS_PER_BATCH + place,
                -1,
                "",
                now_ms + number,
            )
            records.append(Record(place, now_ms + number, *encode(commit)))
        made.append(bytes(encode_batch(records, base_offset=0, leader_epoch=0)))
    return itertools.cycle(made)


async def take_over(follower: Follower) -> dict[str, float]:
    """Seconds until the coordinator answers, by the clock and of the processor, and the longest turn of the loop (ms of
    its thread's processor time, so that a busy machine does not count)."""
    runtime: CoordinatorRuntime[Any, Any] = CoordinatorRuntime(
        "group coordinator", follower, lambda: GroupMachine(GroupConfig(), str), SystemClock()
    )
    held_s = 0.0
    began, cpu = time.perf_counter(), time.process_time()
    runtime.on_leadership(PLACE.partition, LeaderEpoch(1))
    while not runtime.is_active(PLACE.partition):
        turn = time.thread_time()
        await asyncio.sleep(0)
        held_s = max(held_s, time.thread_time() - turn)
    measured = {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "loop_held_ms": round(held_s * 1000, 1),
    }
    await runtime.stop()
    return measured


def main() -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(prog="python -m benches.coordinator_takeover", description=__doc__)
    parser.add_argument("--commits", type=int, default=5_000_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=20, help="that each group commits")
    parser.add_argument("--uncompacted", action="store_true")
    options = parser.parse_args()
    path = Path(tempfile.mkdtemp(prefix="ottla-takeover-"))

    async def run() -> dict[str, Any]:
        follower = Follower(path)
        compacted = not options.uncompacted
        await follower.fill(options.commits, options.groups, options.partitions, compacted=compacted)
        read_bytes = follower.log.size_bytes
        collect_quickly()  # as the broker does
        measured = await take_over(follower)
        return {"commits": options.commits, "read_mb": round(read_bytes / 1e6, 1), **measured}

    try:
        json.dump(asyncio.run(run()), sys.stdout)
        print()
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
