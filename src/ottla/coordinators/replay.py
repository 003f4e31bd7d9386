"""Reads a coordinator's log into a machine, in slices of the event loop (ADR 22)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from ottla.coordination.newest import NewestRecords
from ottla.coordination.state_machine import NO_PRODUCER_ID, StateMachine
from ottla.coordinators.stored_batches import has_compressed, takes_long, unpacked
from ottla.records.batch import BatchHeader, Buffer, iter_batches
from ottla.records.control import decode_end_transaction
from ottla.records.record import decode_records
from ottla.slices import Slices, Steps

SLICE_BYTES: Final = 64 << 10
"""What is searched for the newest records at a time, which takes some 2 ms."""


async def replay(
    machine: StateMachine[Any, Any], log: AsyncIterator[Buffer], slices: Slices, goes_on: Callable[[], bool]
) -> int:
    """Give the machine the records of its log, in chunks of whole batches; returns the offset behind the last.

    Ends early, with any offset, as soon as `goes_on` is false. Raises what reading raises, and CorruptMessage.
    """
    if machine.is_compacted:
        return await _replay_newest(machine, log, slices, goes_on)
    offset = 0
    async for read in log:
        # A batch may unpack to megabytes, which takes long, and is one step.
        chunk = await asyncio.to_thread(unpacked, read) if has_compressed(read) else read
        offset = await slices.run(_replay_chunk(machine, chunk, offset, goes_on))
        if not goes_on():
            break
    return offset


async def _replay_newest(
    machine: StateMachine[Any, Any], log: AsyncIterator[Buffer], slices: Slices, goes_on: Callable[[], bool]
) -> int:
    newest, offset = NewestRecords(), 0
    async for read in log:
        chunk, position = bytes(read), 0
        while position < len(chunk):
            await slices.pause()
            if not goes_on():
                return offset
            if takes_long(chunk, position):
                position, offset = await asyncio.to_thread(newest.take, chunk, position, SLICE_BYTES)
            else:
                position, offset = newest.take(chunk, position, SLICE_BYTES)
    for record_offset, producer_id, key, value in newest.records():
        await slices.pause()
        if not goes_on():
            return offset
        record = machine.records.decode(key, value)
        if record is not None:
            machine.replay(record, record_offset, producer_id)
    return offset


def _replay_chunk(
    machine: StateMachine[Any, Any], chunk: Buffer, offset: int, goes_on: Callable[[], bool]
) -> Steps[int]:
    for header in iter_batches(chunk):
        if not goes_on():
            break
        if header.is_control:
            marker = decode_end_transaction(chunk, header)
            if marker is not None:
                machine.end_transaction(header.producer_id, committed=not marker.is_abort)
        else:
            yield from _replay_batch(machine, chunk, header)
        offset = header.next_offset
        yield
    return offset


def _replay_batch(machine: StateMachine[Any, Any], chunk: Buffer, header: BatchHeader) -> Steps[None]:
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for stored in decode_records(chunk, header):
        record = None if stored.key is None else machine.records.decode(stored.key, stored.value)
        if record is not None:
            machine.replay(record, stored.offset, producer_id)
        yield
