"""Checks the records of produce requests before they are appended, without holding up the event loop.

    little, or uncompressed    checked as it is appended, or here at once
    more                       in `record_checkers`, a few milliseconds at a time and one request after the other;
                               the connection is not read meanwhile, so its batches are appended in their order

What a thread works on is the request's own bytes; what a batch unpacks to is never held (`ottla.records.unpacking`).
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.errors import OttlaError
from ottla.log.validation import CheckedBatches, Examination
from ottla.records.batch import ATTRIBUTES_AT, COMPRESSION_MASK, HEADER_SIZE, RECORD_COUNT, RECORD_COUNT_AT, Compression
from ottla.records.structure import IS_NATIVE
from ottla.server.framer import SCRATCH_BYTES

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.config.log import LogConfig
    from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest
    from ottla.server.transactional_produce import Parts

Place: TypeAlias = tuple[int, int]
"""Number of the topic in the request, and of the partition."""
Checks: TypeAlias = Mapping[Place, CheckedBatches | OttlaError]
"""The results of checking partitions' batches; batches without a result are checked as they are appended."""

NO_CHECKS: Final[Checks] = {}
AT_ONCE_BYTES: Final = 256 * 1024
"""So much of a request is unpacked on the event loop at most (gzip: a quarter, compressed anew: a sixteenth) ..."""
AT_ONCE_UNPACKED_BYTES: Final = 1280 * 1024 if IS_NATIVE else 4 * 1024
"""... and so much may come of it, which is a full batch of most producers ..."""
_AT_ONCE_S: Final = 0.003
"""... in so much time: a thread costs more than that, but not if it is begun there and ended in a thread."""
SMALL_BYTES: Final = 16 * 1024
"""Uncompressed requests of up to this size are not looked at: whatever their topics are, they take a millisecond."""
AT_ONCE_RECORDS: Final = 100_000 if IS_NATIVE else 200
"""So many records of a request are walked on the event loop at most: three milliseconds."""
_STEP_BYTES: Final = 16 << 20
_STEP_S: Final = 0.01


class _Batches(NamedTuple):
    place: Place
    data: "PartitionProduceData"
    config: "LogConfig"

    @property
    def records(self) -> memoryview:
        return memoryview(self.data.records or b"")

    @property
    def weight(self) -> int:
        """How dear it is, compared with unpacking lz4."""
        if self.config.compression_type != "producer":
            return 16
        return 4 if self.records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == Compression.GZIP else 1


class RecordChecks:
    """The checks that a request needs before anything of it is appended."""

    def __init__(self, parts: "Parts", request: "ProduceRequest", *, by_id: bool) -> None:
        self._request = request
        self._parts = parts
        self._work: list[_Batches] = []
        total = 0
        packed = False
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if records is not None and len(records) >= HEADER_SIZE:
                    total += len(records)
                    packed |= bool(records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK)
        if packed or total > SMALL_BYTES:
            self._collect(request, by_id)

    def _collect(self, request: "ProduceRequest", by_id: bool) -> None:
        plain: list[_Batches] = []
        plain_records = 0
        for number, topic in enumerate(request.topic_data):
            key: str | UUID = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                records = data.records
                partition = self._parts.replicas.find(key, data.index)
                if records is None or len(records) < HEADER_SIZE or partition is None or not partition.leading:
                    continue  # refused when it is to be appended
                config = partition.log.config
                batches = _Batches((number, data.index), data, config)
                if records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK or config.compression_type != "producer":
                    self._work.append(batches)
                else:
                    plain.append(batches)
                    plain_records += max(RECORD_COUNT.unpack_from(records, RECORD_COUNT_AT)[0], 0)
        if plain_records > AT_ONCE_RECORDS:
            self._work += plain

    @property
    def are_needed(self) -> bool:
        return bool(self._work)

    def at_once(self) -> Checks | None:
        """The results; None if that takes too long for the event loop."""
        if sum(len(batches.records) * batches.weight for batches in self._work) > AT_ONCE_BYTES:
            return None
        deadline = time.monotonic() + _AT_ONCE_S
        room = AT_ONCE_UNPACKED_BYTES
        checks: dict[Place, CheckedBatches | OttlaError] = {}
        for batches, examination in self._examinations():
            while examination.result is None:
                seconds = deadline - time.monotonic()
                if room <= 0 or seconds <= 0:
                    return None
                room -= examination.go_on(room, seconds)
            checks[batches.place] = examination.result
        return checks

    def keep(self) -> None:
        """Copy the records that lie in the buffer that connections share; larger frames have one of their own.

        All of the request's: those that need no check are appended later, too.
        """
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if records is not None and len(memoryview(records.obj)) <= SCRATCH_BYTES:
                    data.records = memoryview(bytearray(records))

    async def in_thread(self) -> Checks:
        """The results, computed in a thread."""
        loop, threads = self._parts.loop, self._parts.replicas.record_checkers
        checks: dict[Place, CheckedBatches | OttlaError] = {}
        for batches, examination in self._examinations():
            while examination.result is None:
                await loop.run_in_executor(threads, examination.go_on, _STEP_BYTES, _STEP_S)
            checks[batches.place] = examination.result
        return checks

    def _examinations(self) -> "list[tuple[_Batches, Examination]]":
        now_ms = self._parts.clock.now_ms()
        for batches in self._work:
            if batches.records.readonly:
                batches.data.records = memoryview(bytearray(batches.records))
        return [(batches, Examination(batches.records, batches.config, now_ms)) for batches in self._work]
