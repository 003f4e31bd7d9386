"""A simulated node: it carries out the effects of its machine, in order, and can die between any two of them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.messages.quorum_records import VotersRecord
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.control_records import VOTERS, decode_control_batch, encode_control_batch
from ottla.quorum.effects import (
    Advance,
    Append,
    AppendFetched,
    ControlRecord,
    DropSnapshot,
    Effect,
    InstallSnapshot,
    Reply,
    ReplyRecords,
    ReplySnapshot,
    RoleChanged,
    SaveElection,
    Send,
    Truncate,
    VotersChanged,
    Warn,
    WriteSnapshot,
)
from ottla.quorum.machine import QuorumMachine
from ottla.quorum.replicas import EMPTY_LOG, OffsetAndEpoch, ReplicaKey
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from tests.simulation.quorum.disk import Disk, snapshot_of

if TYPE_CHECKING:
    from tests.simulation.quorum.world import World

ON_DISK: Final = SaveElection | Append | AppendFetched | Truncate | WriteSnapshot | InstallSnapshot
"""Effects that a disk may fail at."""


class PowerCut(Exception):
    """A node dies here."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"node {node.id} has no power")
        self.node = node


class Node:
    """`life` counts its starts: what was meant for an earlier life comes to nothing."""

    def __init__(self, world: World, own: OwnReplica, config: QuorumConfig) -> None:
        self.world = world
        self.own = own
        self.config = config
        self.id = own.key.node_id
        self.disk = Disk()
        self.random = Random(world.random.random())
        self.life = 0
        self.is_up = False
        self.paused_until = 0
        self.clock_ahead = 0
        self.high_watermark = 0
        self.tick_at: int | None = None
        self.is_syncing = False
        self.warnings: set[str] = set()
        self.machine: QuorumMachine

    @property
    def now(self) -> int:
        return self.world.now + self.clock_ahead

    def start(self) -> None:
        self.life += 1
        self.is_up = True
        self.high_watermark = 0
        self.is_syncing = False
        self.tick_at = None
        self.disk.recover()
        self.machine = QuorumMachine(self.own, self.config, self.disk, lambda n: self.random.randrange(n))
        self.carry_out(self.machine.start(self.disk.election, self.now))

    def stop(self, *, power: bool) -> None:
        self.is_up = False
        if power:
            self.disk.lose_power(self.random)

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out the effects of one input; a power cut may end it anywhere."""
        cut = self.world.power_cut_within(self, len(effects))
        for index, effect in enumerate(effects):
            if index == cut:
                self.world.cut_power(self)
                return
            if isinstance(effect, ON_DISK) and self.world.disk_fails():
                self._fail(effect)
                return
            self._carry_out(effect)
        self._set_timer()

    def _fail(self, effect: Effect) -> None:
        """The disk refuses an effect, which is done or not; the process ends, as it has to."""
        if self.random.random() < 0.5:
            self._carry_out(effect)
        self.world.stop(self, power=False)

    def _set_timer(self) -> None:
        due = self.machine.next_deadline()
        if due is None:
            self.tick_at = None
            return
        at = max(due - self.clock_ahead, self.world.now + (due <= self.now))
        if self.tick_at is None or at < self.tick_at:
            self.tick_at = at
            self.world.at(at, self, self._tick, at)

    def _tick(self, at: int) -> None:
        if at == self.tick_at:
            self.tick_at = None
            self.carry_out(self.machine.tick(self.now))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.world.send(self, effect)
            case Reply():
                self.world.reply(self, effect.token, effect.response)
            case ReplyRecords():
                records = self.disk.read(effect.offset, effect.max_bytes)
                effect.response.responses[0].partitions[0].records = records
                self.world.reply(self, effect.token, effect.response)
            case ReplySnapshot():
                data = self.disk.snapshots[effect.snapshot][effect.position :][: effect.max_bytes]
                effect.response.topics[0].partitions[0].unaligned_records = data
                self.world.reply(self, effect.token, effect.response)
            case SaveElection():
                self.world.save_election(self.disk, effect.state)
            case Append():
                self._append(self._encode(effect))
            case AppendFetched():
                assert effect.base_offset == self.disk.end.offset
                self._append(bytes(effect.batches))
            case Truncate():
                self.world.observer.truncating(self, effect.offset)
                self.disk.truncate(effect.offset)
            case WriteSnapshot():
                self._write_snapshot(effect)
            case InstallSnapshot():
                self._install(effect.snapshot)
            case DropSnapshot():
                self.disk.partial.pop(effect.snapshot, None)
            case Advance():
                self.world.observer.advanced(self, effect.high_watermark)
            case RoleChanged():
                self.world.observer.role_changed(self, effect)
            case VotersChanged():
                self.world.observer.voters_changed(self)
            case Warn():
                self.warnings.add(effect.text)

    # -- log and snapshots ---------------------------------------------------------------------------------------------

    def _encode(self, effect: Append) -> bytes:
        first = effect.records[0]
        if isinstance(first, ControlRecord):
            records: Any = effect.records
            return bytes(
                encode_control_batch(records, base_offset=effect.base_offset, epoch=effect.epoch, now_ms=self.now)
            )
        rows = [
            Record(effect.base_offset + delta, self.now, None, value)
            for delta, value in enumerate(effect.records)
            if isinstance(value, bytes)
        ]
        return bytes(encode_batch(rows, leader_epoch=effect.epoch))

    def _append(self, data: bytes) -> None:
        previous = self.disk.end.epoch
        self.world.observer.appended(self, self.disk.append(data), previous)
        self.sync()

    def sync(self) -> None:
        """Sync the log; it takes a while, and another sync follows if there is more by then."""
        if self.is_syncing or self.disk.synced >= self.disk.end.offset:
            return
        self.is_syncing = True
        end, truncations = self.disk.end.offset, self.disk.truncations
        self.world.at(self.world.now + self.world.sync_time(), self, self._synced, end, truncations)

    def _synced(self, end: int, truncations: int) -> None:
        self.is_syncing = False
        if self.world.disk_fails():
            self.world.stop(self, power=False)
            return
        if truncations == self.disk.truncations:
            self.disk.synced = max(self.disk.synced, end)
            self.carry_out(self.machine.synced(end, self.now))
        if self.is_up:
            self.sync()

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        if effect.position == 0:
            self.disk.partial[effect.snapshot] = bytearray()
        partial = self.disk.partial[effect.snapshot]
        assert len(partial) == effect.position
        partial += effect.data

    def _install(self, snapshot: OffsetAndEpoch) -> None:
        data = bytes(self.disk.partial.pop(snapshot))
        state = state_in(data)
        if self.world.tears_snapshot():
            self.world.at(self.world.now, self, self._snapshot_failed, snapshot)
            return
        self.world.observer.installed(self, snapshot, state)
        self.disk.snapshots[snapshot] = data
        if self.world.power_cut_within(self, 1) is not None:
            raise PowerCut(self)
        self.disk.install(snapshot, data)

    def _snapshot_failed(self, snapshot: OffsetAndEpoch) -> None:
        self.carry_out(self.machine.snapshot_failed(snapshot, self.now))

    def write_snapshot(self) -> None:
        """Write a snapshot of the committed records, and mostly clean the log before it."""
        end = self.high_watermark
        newest = self.disk.newest_snapshot or EMPTY_LOG
        last = next((batch for batch in reversed(self.disk.batches) if batch.next <= end), None)
        if last is None or last.next <= newest.offset:
            return
        snapshot = OffsetAndEpoch(last.next, last.epoch)
        records = self.machine.voter_records(snapshot.offset)
        state = self.world.observer.states[snapshot.offset]
        self.disk.snapshots[snapshot] = snapshot_of(snapshot, records, state)
        if self.random.random() < 0.7:
            self.disk.clean()
        self.machine.log_cleaned()

    def uncommitted_voter_sets(self) -> int:
        """How many sets of voters in the log are after the high watermark."""
        found = 0
        for batch in self.disk.batches:
            if batch.is_control and batch.next > self.high_watermark:
                header = next(iter_batches(batch.data))
                found += sum(
                    record.type == VOTERS and isinstance(record.value, VotersRecord) and offset >= self.high_watermark
                    for offset, record in decode_control_batch(batch.data, header)
                )
        return found

    @property
    def key(self) -> ReplicaKey:
        return self.own.key


def state_in(snapshot: bytes) -> bytes:
    """The state in a snapshot."""
    for header in iter_batches(snapshot):
        if not header.is_control:
            (record,) = decode_records(snapshot, header)
            assert record.value is not None
            return record.value
    raise AssertionError("no state in the snapshot")
