"""Looks into the brokers of the simulated cluster while they run, and holds the logs of all replicas together.

    an append           one epoch of a partition has one leader, and one batch at an offset, on every replica
    a high watermark    what it passes is committed: the same on every replica, for ever, and on all that are in sync;
                        but for what retention takes from its beginning, and compaction where a newer record has the key
    a replica           starts, catches up, is elected: what it shows is compared again from its beginning
    a truncation        never takes back what is below a follower's high watermark
    a copy              that begins where its leader's log does knows no producers of the records before
    a controller        is not obeyed any more by a broker that has obeyed its successor

It hooks into the log, below everything that decides about replication, and into what carries out a controller's
requests; what is in sync its coordinator knows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from ottla.errors import CorruptMessage
from ottla.log.appends import AppendInfo
from ottla.log.names import METADATA_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.view import MetadataView
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.records.batch import BatchHeader, Buffer, iter_batches
from ottla.records.control import decode_end_transaction
from ottla.records.record import decode_records
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.replication.roles import ReplicaRoles
from ottla.testing.simulation.machine import SimMachine
from tests.simulation.coordination import Coordination
from tests.simulation.history import Committed, History, Place

READ_BYTES: Final = 1 << 22


class Observer:
    """The observer of one run. Its findings go to `History.fail`."""

    def __init__(self, history: History, coordination: Coordination) -> None:
        self._history = history
        self._machines = machines = coordination.machines
        self.in_sync = coordination.in_sync
        self._names = {id(machine.fs): machine.name for machine in machines}
        self._writers: dict[tuple[Place, int], str] = {}
        """Who has accepted writes as leader, by partition and leader epoch."""
        self._batches: dict[tuple[Place, int, int], tuple[int, int]] = {}
        """Last offset and CRC, by partition, leader epoch and base offset."""
        self._checked: dict[PartitionLog, int] = {}
        """Up to where a log was found to be what was committed."""
        self._copied_from: dict[tuple[Place, str], int] = {}
        """Where the log of a replica begins that its leader's retention has made start over."""
        self._obeyed: dict[ClusterMetadata, int] = {}
        """The latest controller epoch that each process of a broker has acted on."""
        self.lost_power: set[tuple[str, Place]] = set()
        """Replicas that may lack unsynced records, until they have caught up or have left the ISR."""

    def power_lost(self, machine: SimMachine) -> None:
        """What it had not synced may be gone from all its replicas."""
        self.lost_power |= {(machine.name, place) for place in self._history.committed}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Sees everything inside."""
        append, as_leader = PartitionLog._append, PartitionLog.append_as_leader
        start_at = PartitionLog.truncate_fully_and_start_at
        known: property = PartitionLog.__dict__["high_watermark"]
        set_known = known.fset
        assert set_known is not None
        take, stop, update = ReplicaRoles.take, ReplicaRoles.stop, ClusterMetadata.update
        start_over = ReplicaManager.start_over

        def _append(
            log: PartitionLog, view: memoryview, headers: list[BatchHeader], *more: Any, **named: Any
        ) -> AppendInfo:
            info = append(log, view, headers, *more, **named)
            if log.topic_partition.topic != METADATA_TOPIC:
                self._appended(log, headers)
            return info

        def append_as_leader(log: PartitionLog, records: Any, leader_epoch: Any, **more: Any) -> AppendInfo:
            info = as_leader(log, records, leader_epoch, **more)
            if not info.duplicate:
                self._accepted(log, leader_epoch, info.first_offset)
            return info

        def truncate_fully_and_start_at(log: PartitionLog, offset: Any) -> None:
            end = log.log_end_offset
            start_at(log, offset)
            if offset >= end and log.topic_partition.topic != METADATA_TOPIC:
                self._copied_from[self._of(log)] = offset

        def high_watermark(log: PartitionLog, offset: Any) -> None:
            before = log.high_watermark
            set_known(log, offset)
            if log.high_watermark > before and log.topic_partition.topic != METADATA_TOPIC:
                try:
                    self._committed(log, before)
                except CorruptMessage as problem:  # else the broker would seem to have failed
                    self._history.fail(f"what is committed cannot be read on {self._of(log)[1]}: {problem}")

        def taken(roles: ReplicaRoles, request: LeaderAndIsrRequest) -> Any:
            self._obeys(roles._replicas._metadata, request)
            return take(roles, request)

        def stopped(roles: ReplicaRoles, request: StopReplicaRequest) -> Any:
            self._obeys(roles._replicas._metadata, request)
            return stop(roles, request)

        def updated(metadata: ClusterMetadata, request: UpdateMetadataRequest) -> None:
            self._obeys(metadata, request)
            update(metadata, request)

        def started_over(replicas: ReplicaManager, partition: Partition, reason: str) -> None:
            place, name = self._of(partition.log)
            self._history.fail(f"{place}: {name} is to throw away what was committed: {reason}")
            start_over(replicas, partition, reason)

        with (
            patch.object(ReplicaManager, "start_over", started_over),
            patch.object(ReplicaRoles, "take", taken),
            patch.object(ReplicaRoles, "stop", stopped),
            patch.object(ClusterMetadata, "update", updated),
            patch.object(PartitionLog, "_append", _append),
            patch.object(PartitionLog, "append_as_leader", append_as_leader),
            patch.object(PartitionLog, "truncate_fully_and_start_at", truncate_fully_and_start_at),
            patch.object(PartitionLog, "high_watermark", property(known.fget, high_watermark)),
        ):
            yield

    # -- controllers ---------------------------------------------------------------------------------------------------

    def _obeys(
        self, metadata: MetadataView, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> None:
        if not isinstance(metadata, ClusterMetadata):
            return  # requests that a broker has derived from the metadata log
        latest = self._obeyed.get(metadata, -1)
        if request.controller_epoch < latest:
            self._history.fail(
                f"broker {metadata.broker_id} does what broker {request.controller_id} says as the controller of epoch "
                f"{request.controller_epoch}, after what that of epoch {latest} has said"
            )
        self._obeyed[metadata] = request.controller_epoch

    # -- appends -------------------------------------------------------------------------------------------------------

    def _accepted(self, log: PartitionLog, leader_epoch: int, offset: int) -> None:
        place, name = self._of(log)
        if begin := self._copied_from.get((place, name)):
            self._history.copied_from[place, leader_epoch, offset] = begin
        writer = self._writers.setdefault((place, leader_epoch), name)
        if writer != name:
            self._history.fail(f"{place}: {writer} and {name} both accept writes as leader of epoch {leader_epoch}")

    def _appended(self, log: PartitionLog, headers: Sequence[BatchHeader]) -> None:
        place, name = self._of(log)
        for header in headers:
            if header.last_offset < self._copied_from.get((place, name), 0):
                del self._copied_from[place, name]  # all is copied again, from before
            key = (place, header.leader_epoch, header.base_offset)
            found = (header.last_offset, header.crc)
            known = self._batches.setdefault(key, found)
            if known != found and not (log.config.compact and known[0] == found[0]):
                self._history.fail(
                    f"{place}: {name} appends another batch at {header.base_offset} in epoch {header.leader_epoch} "
                    "than was written there before"
                )

    # -- what is committed ---------------------------------------------------------------------------------------------

    def _committed(self, log: PartitionLog, before: int) -> None:
        """Everything below the log's high watermark is committed, if it was not known to be."""
        place, name = self._of(log)
        committed = self._history.committed[place]
        old_end = committed.end
        self._compare(log, committed, min(before, self._checked.get(log, 0)), log.high_watermark)
        self._checked[log] = log.high_watermark
        if committed.end < log.high_watermark:
            self._history.fail(f"{place}: {name} cannot read from {committed.end} to its high watermark")
        if committed.end > old_end:
            self._check_in_sync(place, name, committed, old_end)

    def _compare(self, log: PartitionLog, committed: Committed, start: int, end: int, *, extend: bool = True) -> None:
        place, name = self._of(log)
        start = max(start, log.log_start_offset)
        reached, kept = start, set[int]()
        for data, header in _batches(log, start, end):
            found = (header.last_offset, header.leader_epoch, header.crc)
            known = committed.batches.get(header.base_offset)
            if log.config.compact:
                kept |= {record.offset for record in decode_records(data, header)}
            elif header.base_offset > reached:
                self._history.fail(f"{place}: {name} has nothing from {reached} to {header.base_offset}")
            reached = header.next_offset
            if known is None and header.base_offset == committed.end and extend:
                committed.batches[header.base_offset] = found
                committed.end = header.next_offset
                _take_in(committed, data, header)
            elif known != found and not (
                log.config.compact
                and known is not None
                and known[:2] == found[:2]
                and _is_rest(committed, data, header)
            ):
                self._history.fail(
                    f"{place}: {name} has {found} (last offset, epoch, CRC) at {header.base_offset}, below its high "
                    f"watermark of {end}; committed there is {known}"
                )
        if log.config.compact:
            self._check_newest(place, name, committed, range(start, min(end, committed.end)), kept)
        elif reached < end:
            self._history.fail(f"{place}: {name} has nothing from {reached} to {end}")

    def _check_newest(self, place: Place, name: str, committed: Committed, offsets: range, kept: set[int]) -> None:
        """Compaction leaves the last record of each key."""
        for key, offset in committed.newest.items():
            if offset in offsets and offset not in kept and committed.records[offset][1] is not None:
                self._history.fail(f"{place}: {name} has compacted the newest record of {key!r}, at {offset}")

    def _check_in_sync(self, place: Place, name: str, committed: Committed, old_end: int) -> None:
        """Whoever is in sync has what has just been committed."""
        for machine in self._machines:
            if machine.name == name or int(machine.name[1:]) not in self.in_sync(place):
                continue
            replica = held_by(machine, place)
            if replica is None or (machine.name, place) in self.lost_power:
                continue
            if replica.log.log_end_offset < committed.end:
                self._history.fail(
                    f"{place}: {name} has committed up to {committed.end}, and {machine.name}, which is in sync, ends "
                    f"at {replica.log.log_end_offset}"
                )
            else:
                self._compare(replica.log, committed, old_end, committed.end, extend=False)

    def look(self) -> None:
        """Now and then: whether what was committed is still there, wherever it has to be."""
        for place, committed in self._history.committed.items():
            in_sync = self.in_sync(place)
            for machine in self._machines:
                replica = held_by(machine, place)
                if replica is None:
                    continue
                if replica.log.log_start_offset > committed.end:
                    self._history.fail(
                        f"{place}: {machine.name} begins at {replica.log.log_start_offset}: it has deleted what is not "
                        f"committed, as is what lies before {committed.end}"
                    )
                unsure = (machine.name, place)
                if int(machine.name[1:]) not in in_sync or replica.log.log_end_offset >= committed.end:
                    self.lost_power.discard(unsure)
                elif unsure not in self.lost_power:
                    self._history.fail(
                        f"{place}: {committed.end} records are committed, and {machine.name}, which is in sync, ends "
                        f"at {replica.log.log_end_offset}"
                    )

    def finish(self) -> None:
        """In the end all replicas hold what was committed, as far as retention has left it."""
        for place, committed in self._history.committed.items():
            for machine in self._machines:
                replica = held_by(machine, place)
                if replica is None:
                    continue
                if replica.log.log_end_offset != committed.end:
                    self._history.fail(
                        f"{place}: {committed.end} records were committed, and in the end {machine.name} has "
                        f"{replica.log.log_end_offset}"
                    )
                self._compare(replica.log, committed, 0, committed.end, extend=False)

    def end_of(self, place: Place) -> int:
        """Up to where a partition is known to be committed."""
        return self._history.committed[place].end

    # -- where to look -------------------------------------------------------------------------------------------------

    def _of(self, log: PartitionLog) -> tuple[Place, str]:
        return Place(*log.topic_partition), self._names[id(log._fs)]


def _batches(log: PartitionLog, start: int, end: int) -> Iterator[tuple[Buffer, BatchHeader]]:
    """All batches between two offsets; a read gives those of one segment."""
    while start < end:
        data = log.read_blocking(start, READ_BYTES, upper_bound=log.log_end_offset, min_one_message=True).data
        headers = list(iter_batches(data))
        if not headers:
            return
        for header in headers:
            if header.base_offset < end:
                yield data, header
        start = headers[-1].next_offset


def _take_in(committed: Committed, data: Buffer, header: BatchHeader) -> None:
    """The records of a batch that has just been committed, or the end of a transaction."""
    if header.is_control:
        marker = decode_end_transaction(data, header)
        if marker is not None:
            committed.visible |= dict.fromkeys(committed.open.pop(header.producer_id, ()), not marker.is_abort)
        return
    values: dict[int, bytes] = {}
    for record in decode_records(data, header):
        values[record.offset] = record.value or b""
        if record.key is not None:
            committed.records[record.offset] = (record.key, record.value)
            committed.newest[record.key] = record.offset
    committed.values |= values
    if header.is_transactional:
        committed.open[header.producer_id] += values.values()


def _is_rest(committed: Committed, data: Buffer, header: BatchHeader) -> bool:
    """Whether the batch has nothing but records that were committed there."""
    return all(
        record.key is not None and committed.records.get(record.offset) == (record.key, record.value)
        for record in decode_records(data, header)
    )


def held_by(machine: SimMachine, place: Place) -> Partition | None:
    """The replica on a machine, once the controller has spoken of it."""
    broker = machine.broker
    return None if broker is None else broker.replicas.find(place.topic, place.partition)
