"""The broker's own records, which coordinators keep in internal topics: appended until committed, read from the start.

Everything here runs on the loop's thread, except for the reads of the disk.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from ottla.ids import Offset
from ottla.log.producer_state import Origin
from ottla.records.batch import last_batch, read_header
from ottla.replication.delayed import FutureCommit
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.log.appends import AppendInfo
    from ottla.log.partition_log import PartitionLog
    from ottla.records.batch import Buffer
    from ottla.replication.manager import ReplicaManager

READ_CHUNK_BYTES: Final = 1 << 20
POLL_INTERVAL_S: Final = 0.1


async def append_committed(replicas: "ReplicaManager", topic: str, partition: int, records: bytearray) -> "AppendInfo":
    """Append the broker's own batches and return once they are committed.

    Raises NotLeader, `ApiError` NOT_ENOUGH_REPLICAS, KafkaStorageError, and whatever the log refuses.
    """
    found = replicas.for_own_append(topic, partition)
    info = found.append(records, Origin.COORDINATOR)
    end = Offset(info.last_offset + 1)
    if found.high_watermark < end:
        waiter = FutureCommit(asyncio.get_running_loop())
        found.when_committed(end, 0, waiter)
        await waiter.future
    return info


async def read_all(replicas: "ReplicaManager", topic: str, partition: int) -> "AsyncIterator[Buffer]":
    """The batches from the log's start on, in chunks of whole batches.

    Waits for the present content of the log to be committed: the tail that a crash has left is still to be synced.
    With
    too few in-sync replicas for that, it is enough that all of them have it, since it can no longer be lost: unless an
    eligible replica may lead, which lacks it (KIP-966).
    Raises as `append_committed`.
    """
    found = replicas.leader(topic, partition)
    source = found.log
    end = source.log_end_offset
    loop = asyncio.get_running_loop()
    await _until_kept(replicas, found, end, loop)
    offset = source.log_start_offset
    bound = max(end, source.high_watermark)
    while offset < bound:
        data, offset = await loop.run_in_executor(replicas.threads.loading, read_chunk, source, offset, bound)
        if not len(data):
            return
        yield data


async def _until_kept(
    replicas: "ReplicaManager", partition: Partition, end: Offset, loop: asyncio.AbstractEventLoop
) -> None:
    if partition.high_watermark >= end:
        return
    waiter = FutureCommit(loop)
    partition.when_committed(end, 0, waiter)
    while not (await asyncio.wait([waiter.future], timeout=POLL_INTERVAL_S))[0]:
        too_few = len(partition.isr) < partition.min_in_sync
        if too_few and partition.replicated >= end and replicas.only_in_sync_may_lead(partition):
            waiter.future.cancel()
            return
    waiter.future.result()


def read_chunk(source: "PartitionLog", offset: Offset, bound: Offset) -> "tuple[Buffer, Offset]":
    """Whole batches from `offset` on, and the offset behind them. In a thread."""
    data = source.read_blocking(offset, READ_CHUNK_BYTES, upper_bound=bound, min_one_message=True).data
    return data, Offset(read_header(data, last_batch(data)).next_offset) if len(data) else offset
