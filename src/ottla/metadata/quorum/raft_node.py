r"""A node of the metadata quorum: drives the state machine of `ottla.quorum`, and carries its effects out.

    requests, answers, timers, syncs --> inputs --> QuorumMachine --> effects --> files, connections, replies
                                                                         \
                                                                          --> deliveries --> listeners

One task takes the inputs, one after the other. Each is decided at once; its effects are carried out in their order, and
those that have to be durable first are waited for, in a thread. Everything else runs on the loop.

A disk that fails ends the node: it answers nothing that it cannot keep, and `failed` is called, as Kafka's controllers
end when their metadata log fails.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from ottla.client.sockets import Connect
from ottla.clock import Clock
from ottla.errors import CorruptMessage, KafkaStorageError, OttlaError
from ottla.log.fs import LACKS_ROOM, FileSystem
from ottla.metadata.quorum import election_file
from ottla.metadata.quorum.answers import Answers
from ottla.metadata.quorum.appends import Appends
from ottla.metadata.quorum.batches import encode_append
from ottla.metadata.quorum.delivery import Delivery, lowest
from ottla.metadata.quorum.metadata_log import MetadataLog, MetadataLogConfig
from ottla.metadata.quorum.node import (
    LeaderAndEpoch,
    Listener,
    NotQuorumLeader,
    OffsetAndEpoch,
    QuorumStatus,
    SnapshotRecords,
)
from ottla.metadata.quorum.peers import Peers
from ottla.metadata.quorum.snapshotting import Snapshotting
from ottla.protocol.schema import Message
from ottla.quorum import effects
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.effects import Effect, Role
from ottla.quorum.election_state import ElectionState
from ottla.quorum.leading import STAY_MS
from ottla.quorum.machine import QuorumMachine
from ottla.records.batch import Buffer
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

LONG_REPLAY_BYTES: Final = 1 << 20
"""A node that ends with more than that in its log since the last snapshot writes another: ten thousand records take a
fifth of a second to replay."""

T = TypeVar("T")
Input = Callable[[QuorumMachine, int], Sequence[Effect]]
"""Something that has happened, for the machine at a monotonic time in milliseconds."""


def _ignore(problem: BaseException) -> None:
    """The node's end is noted in the log anyway."""


class RaftNode:
    """A `QuorumNode` with files and connections. On the loop's thread."""

    def __init__(
        self,
        own: OwnReplica,
        log_dir: str,
        config: QuorumConfig,
        log_config: MetadataLogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        connect: Connect,
        linger_ms: int = 25,
        failed: Callable[[BaseException], None] = _ignore,
    ) -> None:
        """`log_dir` is `metadata.log.dir`, claimed by its `meta.properties` and locked by the caller; `connect` opens
        connections as the controllers' listener wants them. `failed` is called once if the node cannot go on."""
        self.node_id = own.key.node_id
        self.own = own
        self.voters_stay = ""
        self.remark = ""
        self.leader = LeaderAndEpoch(None, 0)
        self._log_dir = log_dir
        self._config = config
        self._log_config = log_config
        self._fs = fs
        self._clock = clock
        self._connect = connect
        self._failed = failed
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="ottla quorum")
        self._tasks = Tasks()
        self._deliveries: list[Delivery] = []
        self._waiting_listeners: list[tuple[Listener, SnapshotRecords | None]] = []
        self._inputs: deque[Input] = deque()
        self._woken = asyncio.Event()
        self._appends = Appends(linger_ms, self._woken.set)
        self._handled = asyncio.Event()
        """Set after inputs were handled."""
        self._timer: asyncio.TimerHandle | None = None
        self._answers = Answers(self._in_thread, self._tasks)
        self._role = Role.UNATTACHED
        self._leader_address: tuple[str, int] | None = None
        self._high_watermark: int | None = None
        self._epoch_start: int | None = None
        """The offset of the record that opened the epoch of this leader."""
        self._kraft_version = 0
        self.voters = config.static_voters
        """The newest voters in the log, committed or not."""
        self._syncing = asyncio.Lock()
        """Held from the preparation of a sync to its end."""
        self._unsynced = asyncio.Event()
        self._cuts = 0
        """How often the log was truncated, or replaced by a snapshot."""
        self._snapshotting: Snapshotting | None = None
        self._is_closed = False
        self._log: MetadataLog | None = None
        self._machine: QuorumMachine | None = None
        self._peers = Peers(f"raft-client-{self.node_id}", connect, self)

    # --- as controllers and brokers see it ----------------------------------------------------------------------

    @property
    def high_watermark(self) -> int | None:
        """See `QuorumNode`."""
        return self._high_watermark

    @property
    def voter_ids(self) -> frozenset[int]:
        """See `QuorumNode`."""
        return self.voters.ids

    def voter_addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """See `QuorumNode`."""
        return {
            voter.key.node_id: (host, port)
            for voter in self.voters
            for name, host, port in voter.endpoints
            if name == listener
        }

    @property
    def kraft_version(self) -> int:
        """See `QuorumNode`."""
        return self._kraft_version

    @property
    def next_offset(self) -> int:
        """See `QuorumNode`."""
        return self.log.end.offset + self._appends.count

    def status(self) -> QuorumStatus:
        """See `QuorumNode`."""
        if self._log is None or self._machine is None:
            return QuorumStatus(self._role.value, 0, len(self.voters), {})
        newest = self._log.newest_snapshot
        return QuorumStatus(
            self._role.value,
            self._log.end.offset,
            len(self.voters),
            self._machine.voter_lags,
            log_start_offset=self._log.start_offset,
            snapshot=newest,
            snapshot_bytes=0 if newest is None else self._log.snapshot_size(newest) or 0,
            addresses={
                voter.key.node_id: [f"{each.name}://{each.host}:{each.port}" for each in voter.endpoints]
                for voter in self.voters
            },
            requests=len(self._answers),
            appends=len(self._appends),
        )

    @property
    def log(self) -> MetadataLog:
        """The files; there are none before `start`."""
        assert self._log is not None, "not started"
        return self._log

    @property
    def meets_only_strangers(self) -> bool:
        """See `QuorumNode`."""
        return self._machine is not None and self._machine.meets_only_strangers

    def leader_endpoint(self) -> tuple[str, int] | None:
        """See `QuorumNode`."""
        return self._leader_address

    def register(self, listener: Listener, snapshot_records: SnapshotRecords | None = None) -> None:
        """See `QuorumNode`."""
        if self._log is None:
            self._waiting_listeners.append((listener, snapshot_records))
            return
        made = Delivery(listener, self._log, self._fs, self, self._threads, snapshot_records)
        self._deliveries.append(made)
        made.leader_changed(self.leader, self._announced_after())
        self._tasks.spawn(made.run(), "delivery of metadata records")

    def append(self, records: Sequence[bytes], *, epoch: int) -> "asyncio.Future[int]":
        """See `QuorumNode`."""
        if self._role is not Role.LEADER or self.leader.epoch != epoch or self._is_closed:
            raise NotQuorumLeader(f"node {self.node_id} does not lead the metadata quorum in epoch {epoch}")
        return self._appends.add(records, self.next_offset)

    async def raise_kraft_version(self, level: int, *, epoch: int, validate_only: bool = False) -> None:
        """See `QuorumNode`."""

        def happened(machine: QuorumMachine, now_ms: int) -> list[Effect]:
            try:
                wanted = machine.upgrade_kraft_version(level, epoch, now_ms, validate_only=validate_only)
            except OttlaError as refused:
                done.set_exception(refused)
                return []
            done.set_result(None)
            return wanted

        token, done = self._answers.open()
        self._put(happened)
        try:
            await done
        finally:
            self._answers.close(token)

    def resign(self, epoch: int) -> None:
        """See `QuorumNode`."""
        self._put(lambda machine, now_ms: machine.resign(epoch, now_ms))

    async def handle(self, request: Message, version: int, *, within_limit: bool = False) -> Any:
        """The response to a request of the quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot,
        DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

        Of a Fetch `within_limit`, no record is in the answer if the first batch is larger than its limit. Raises
        KafkaStorageError when the node has ended.
        """
        if self._is_closed:
            raise KafkaStorageError(f"node {self.node_id} is no longer part of the metadata quorum")
        token, answer = self._answers.open(within_limit=within_limit)
        self._put(
            lambda machine, now_ms: machine.handle(
                token, request, now_ms, version=version, wall_ms=self._clock.now_ms()
            )
        )
        try:
            return await answer
        finally:
            self._answers.close(token)
            if answer.cancelled() and self._machine is not None:
                self._machine.forget(token)

    # --- start and end ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See `QuorumNode`."""
        self._log = await self._in_thread(self._open)
        election = await self._in_thread(election_file.read, self._fs, self._log.directory)
        self._machine = QuorumMachine(self.own, self._config, self._log, random.randrange)
        machine = self._machine
        self._snapshotting = Snapshotting(
            self._log, machine, self._log_config, self._syncing, self._in_thread, self._tasks
        )
        begun = await self._in_thread(self._begin, machine, election)
        async with self._log.lock:
            await self._carry_out(begun)
        for listener, snapshot_records in self._waiting_listeners:
            self.register(listener, snapshot_records)
        self._waiting_listeners.clear()
        self._set_timer()
        self._tasks.spawn(self._run(), "metadata quorum")
        self._tasks.spawn(self._sync(), "syncs of the metadata log")
        self._tasks.spawn(self._snapshotting.clean(), "deletion of old metadata")

    def _begin(self, machine: QuorumMachine, election: ElectionState | None) -> list[Effect]:
        try:
            return machine.start(election, self._now_ms())
        except CorruptMessage as damaged:
            raise KafkaStorageError(
                f"{damaged}. Restore the file. Or remove the directory {self.log.directory}, and the node fetches "
                "everything from the quorum; remove a voter from the voters first, and add it again afterwards"
            ) from damaged

    def _open(self) -> MetadataLog:
        try:
            return MetadataLog.open(self._log_dir, self._log_config, fs=self._fs, clock=self._clock)
        except OSError as problem:
            raise KafkaStorageError(f"cannot open the metadata log in {self._log_dir}: {problem}") from problem

    async def close(self) -> None:
        """See `QuorumNode`."""
        has_failed = self._is_closed
        if self._machine is not None and not has_failed:
            self._put(lambda machine, now_ms: machine.shut_down(now_ms))
            await self._until_handed_over()
            await self._write_last_snapshot()
        self._end(NotQuorumLeader(f"node {self.node_id} leaves the metadata quorum"))
        await self._tasks.close()
        await self._peers.close()
        if self._log is not None:
            await self._in_thread(self._log.release if has_failed else self._log.close)
        self._threads.shutdown(wait=False)

    async def _write_last_snapshot(self) -> None:
        """Spare the next start the replay of a long log."""
        for delivery in self._deliveries:
            last = delivery.last_snapshot(LONG_REPLAY_BYTES)
            if last is not None and self._snapshotting is not None and not self._is_closed:
                await self._snapshotting.write_last(*last)

    def fail(self, problem: BaseException) -> None:
        """End the node: it can keep nothing any more, or does not understand its log."""
        if self._is_closed:
            return
        log.critical("node %d of the metadata quorum ends: %s", self.node_id, problem, exc_info=problem)
        self._end(KafkaStorageError(f"node {self.node_id} has left the metadata quorum: {problem}"))
        self._failed(problem)

    def _end(self, problem: OttlaError) -> None:
        self._is_closed = True
        self._role = Role.UNATTACHED
        if self._timer is not None:
            self._timer.cancel()
        self._inputs.clear()
        self._appends.fail(NotQuorumLeader(str(problem)))
        self._answers.fail(problem)
        self._set_leader(LeaderAndEpoch(None, self.leader.epoch), None, 0)

    # --- inputs -------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _put(self, happened: Input) -> None:
        if not self._is_closed:
            self._inputs.append(happened)
            self._woken.set()

    def answered(self, request_id: int, response: Message) -> None:
        """See `peers.Outcome`."""
        self._put(lambda machine, now_ms: machine.answered(request_id, response, now_ms))

    def failed(self, request_id: int, *, unsupported: bool) -> None:
        """See `peers.Outcome`."""
        self._put(lambda machine, now_ms: machine.failed(request_id, now_ms, unsupported=unsupported))

    async def _run(self) -> None:
        assert self._machine is not None
        try:
            while not self._is_closed:
                await self._woken.wait()
                self._woken.clear()
                async with self.log.lock:
                    await self._drain()
                    while self._inputs:
                        happened = self._inputs.popleft()
                        await self._drain()
                        await self._carry_out(happened(self._machine, self._now_ms()))
                self._set_timer()
                self._handled.set()
        except Exception as problem:
            self.fail(problem)

    async def _drain(self) -> None:
        """Append what was gathered. It comes before whatever else the machine may append, so that its offsets hold."""
        if not self._appends.count or self._role is not Role.LEADER:
            return
        assert self._machine is not None
        for batch in self._appends.drain():
            await self._carry_out(self._machine.append(batch, self.leader.epoch, self._now_ms()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        assert self._machine is not None
        deadline = self._machine.next_deadline()
        if deadline is not None and not self._is_closed:
            delay_s = max(0.0, (deadline - self._now_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._put(lambda machine, now_ms: machine.tick(now_ms))

    # --- effects ------------------------------------------------------------------------------------------------

    async def _carry_out(self, wanted: Sequence[Effect]) -> None:
        """In their order; with the log's lock held. Raises OSError, KafkaStorageError, CorruptMessage."""
        for effect in wanted:
            match effect:
                case effects.Send():
                    self._peers.send(effect)
                case effects.Reply():
                    self._answers.reply(effect.token, effect.response)
                case effects.ReplyRecords():
                    self._answers.reply_records(effect, self.log)
                case effects.ReplySnapshot():
                    self._answers.reply_snapshot(effect, self.log)
                case effects.Append():
                    self._append(effect)
                case effects.AppendFetched():
                    self.log.append(effect.batches, effect.base_offset)
                    self._unsynced.set()
                case effects.Advance():
                    self._advance(effect.high_watermark)
                case effects.RoleChanged():
                    self._role_changed(effect)
                case effects.VotersChanged():
                    self._kraft_version, self.voters = effect.kraft_version, effect.voters
                case effects.Warn():
                    log.warning("node %d of the metadata quorum: %s", self.node_id, effect.text)
                case _:
                    await self._carry_out_durably(effect)

    async def _carry_out_durably(self, effect: Effect) -> None:
        """What has to be on the disk before the next effect."""
        match effect:
            case effects.SaveElection(state):
                await self._in_thread(self._save, state)
            case effects.Truncate(offset):
                log.warning("the metadata log is truncated to offset %d, as the quorum's leader has it", offset)
                async with self._syncing:
                    self._cuts += 1
                    await self._in_thread(self.log.truncate, offset)
            case effects.WriteSnapshot(snapshot, position, data):
                await self._write_part(snapshot, position, data)
            case effects.DropSnapshot(snapshot):
                await self._in_thread(self.log.drop_part, snapshot)
            case effects.InstallSnapshot(snapshot):
                async with self._syncing:
                    self._cuts += 1
                    is_whole = await self._in_thread(self.log.install, snapshot)
                if not is_whole:
                    self._inputs.appendleft(lambda machine, now_ms: machine.snapshot_failed(snapshot, now_ms))
                self._wake_deliveries()

    async def _write_part(self, snapshot: OffsetAndEpoch, position: int, data: Buffer) -> None:
        try:
            await self._in_thread(self.log.write_part, snapshot, position, data)
        except OSError as problem:
            if problem.errno not in LACKS_ROOM:
                raise
            await self._in_thread(self.log.drop_part, snapshot)
            self._inputs.appendleft(lambda machine, now_ms: machine.snapshot_lacks_room(snapshot, now_ms))

    def _save(self, state: ElectionState) -> None:
        election_file.write(
            self._fs, self.log.directory, state, kraft_version=self._kraft_version, voter_ids=self.voters.ids
        )

    def _append(self, effect: effects.Append) -> None:
        self.log.append(encode_append(effect, self._clock.now_ms()), effect.base_offset)
        self._unsynced.set()

    def _advance(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self.log.note_committed(high_watermark)
        self._wake_deliveries()

    def _wake_deliveries(self) -> None:
        for each in self._deliveries:
            each.wake()
        if not self._deliveries:
            self.delivered()

    # --- leaders ------------------------------------------------------------------------------------------------

    def _role_changed(self, effect: effects.RoleChanged) -> None:
        was_leader, self._role = self._role is Role.LEADER, effect.role
        if was_leader and (effect.role is not Role.LEADER or effect.epoch != self.leader.epoch):
            self._appends.fail(
                NotQuorumLeader(f"node {self.node_id} no longer leads the metadata quorum in epoch {self.leader.epoch}")
            )
        address = None if effect.leader is None else (effect.leader.host, effect.leader.port)
        self._epoch_start = effect.epoch_start
        if effect.role is Role.LEADER and self.own.endpoints:
            address = self.own.endpoints[0].host, self.own.endpoints[0].port
        self._set_leader(LeaderAndEpoch(effect.leader_id, effect.epoch), address, self._announced_after())

    def _announced_after(self) -> int:
        """The offset up to which a listener must have everything before it is sent the leader."""
        if self._role is Role.LEADER and self._epoch_start is not None:
            return self._epoch_start + 1
        return 0

    def _set_leader(self, leader: LeaderAndEpoch, address: tuple[str, int] | None, after: int) -> None:
        self._leader_address = address
        if leader == self.leader:
            return
        self.leader = leader
        log.info(
            "the leader of the metadata quorum in epoch %d is %s",
            leader.epoch,
            "not known" if leader.leader_id is None else leader.leader_id,
        )
        for each in self._deliveries:
            each.leader_changed(leader, after)

    async def _until_handed_over(self) -> None:
        """Wait until the machine is done with its shutdown, at most for the time of an election since it last led."""
        machine, loop = self._machine, asyncio.get_running_loop()
        assert machine is not None
        election_s, stay_s, leads = self._config.election_timeout_ms / 1000, STAY_MS / 1000, True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(election_s) as limit:
                while not self._is_closed and (self._inputs or not machine.has_shut_down):
                    self._handled.clear()
                    await self._handled.wait()
                    led, leads = leads, machine.role is Role.LEADER
                    if led:
                        limit.reschedule(loop.time() + election_s + stay_s * leads)

    # --- syncs, snapshots, deletion -----------------------------------------------------------------------------

    async def _sync(self) -> None:
        """Bring what was appended to the disk: one sync after the other, each with all that has come meanwhile."""
        try:
            while True:
                await self._unsynced.wait()
                self._unsynced.clear()
                async with self._syncing:
                    ticket = self.log.prepare_sync()
                    if ticket is None:
                        continue
                    await self._in_thread(ticket.sync)
                    synced = self.log.synced(ticket)
                self._put(partial(self._synced, synced, self._cuts))
        except (OSError, OttlaError) as problem:
            self.fail(KafkaStorageError(f"cannot sync the metadata log in {self._log_dir}: {problem}"))

    def _synced(self, end: int, cuts: int, machine: QuorumMachine, now_ms: int) -> Sequence[Effect]:
        # What was appended in the place of truncated records has offsets that an earlier sync seems to have reached.
        return machine.synced(end, now_ms) if cuts == self._cuts else machine.tick(now_ms)

    def delivered(self) -> None:
        """See `delivery.Host`."""
        self._appends.delivered(lowest(self._deliveries, self._high_watermark or 0))

    def snapshot_is_due(self, bytes_since: int) -> bool:
        """See `delivery.Host`."""
        return self._snapshotting is not None and self._snapshotting.is_due(bytes_since)

    def begin_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """See `delivery.Host`."""
        assert self._snapshotting is not None
        self._snapshotting.begin(at, records)

    async def write_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """See `QuorumNode`."""
        assert self._snapshotting is not None, "not started"
        try:
            await self._snapshotting.write(at, records)
        except OSError as problem:
            raise KafkaStorageError(f"cannot write a snapshot in {self._log_dir}: {problem}") from problem

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of what waits for a disk. A cancelled caller leaves only when the thread is done: the locks that
        it holds are there to keep others from the files meanwhile."""
        working = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise
