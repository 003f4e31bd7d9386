"""One replica of this broker: its log, its high watermark, and the requests that wait for it to move.

    log start          high watermark = durable end           log end
       |------------------------|--------------------------------|
        served to consumers      appended, not yet synced

With `flush.before.ack` (the default) the high watermark follows the synced end of the log, so a consumer never sees a
record that a crash could take back. Without it, it follows the log end, as in a Kafka cluster of one broker.

Where there are followers, it moves no further than all of them that are in sync have come (`in_sync.py`). A follower
takes it from its leader.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.errors import ErrorCode, KafkaStorageError, UnknownLeaderEpoch, sentence
from ottla.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.log.producer_state import Origin
from ottla.replication.decisions.in_sync import InSyncReplicas, Proposal, QuietFetches
from ottla.replication.refused_producers import RefusedProducers

if TYPE_CHECKING:
    from ottla.config.log import LogConfig
    from ottla.log.appends import AppendInfo
    from ottla.log.flush import FlushTicket
    from ottla.log.leader_epochs import EpochEnd, EpochGap
    from ottla.log.partition_log import PartitionLog
    from ottla.log.producer_state import Verification
    from ottla.log.validation import CheckedBatches
    from ottla.records.batch import Buffer
    from ottla.replication.delayed import CommitWaiter, Waiting
    from ottla.replication.environment import ReplicaEnvironment
    from ottla.replication.group_commit import GroupCommit
    from ottla.replication.throughput import Throughput

logger = logging.getLogger(__name__)


class Partition:
    """Owned by the `ReplicaManager`; touched on the loop's thread only."""

    __slots__ = (
        "_commit_waiters",
        "_deletion_waiters",
        "_environment",
        "_epoch_start_offset",
        "_flusher",
        "_refused",
        "_unsynced_since_ms",
        "_wake",
        "acknowledged_end",
        "appended_bytes",
        "fetch_waiters",
        "follower_waiters",
        "in_sync",
        "isr",
        "leader",
        "leader_epoch",
        "leading",
        "log",
        "partition_epoch",
        "refusing",
        "replicas",
        "throughput",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: "PartitionLog",
        flusher: "GroupCommit",
        wake: "Callable[[Waiting], None]",
        environment: "ReplicaEnvironment",
        throughput: "Throughput",
    ) -> None:
        """The new partition has no role until `lead` or `follow`."""
        self.topic_partition = topic_partition
        self.throughput = throughput
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = LeaderEpoch(-1)
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        """The in-sync replicas of the controller's last request; a follower's may be outdated."""
        self.leading = False
        self.in_sync: InSyncReplicas | None = None
        """The in-sync set, of a partition that is led here and has followers."""
        self.refusing = False
        self._refused = RefusedProducers()
        self.appended_bytes = 0
        self.acknowledged_end = Offset(0)
        """Where the records end that were acknowledged with acks=1, before they are committed."""
        self.fetch_waiters: Waiting = {}
        """Fetches of consumers, which wait for the high watermark to move."""
        self.follower_waiters: Waiting = {}
        """Fetches of followers, which wait for the log to grow."""
        self._commit_waiters: deque[tuple[Offset, int, CommitWaiter]] = deque()
        self._deletion_waiters: list[tuple[Offset, int, CommitWaiter]] = []
        self._flusher = flusher
        self._wake = wake
        self._environment = environment
        self._unsynced_since_ms: int | None = None
        self._epoch_start_offset = log.log_end_offset

    # -- roles -------------------------------------------------------------------------------------------------------

    def lead(self, state: PartitionImage, *, is_confirmed: bool = True) -> None:
        """This broker leads from now on, or goes on leading, among other replicas. An older or known state changes
        nothing: changes proposed since then stand.

        Unless `is_confirmed`, the controller is notified as soon as the log is synced to its present end: before
        that, nothing that only this broker's disk holds is committed (ADR 15).

        A new epoch begins at the end of the log, even if nothing is written in it: a follower may have records of an
        epoch that this log never had (KIP-279).
        """
        if state.partition_epoch < self.partition_epoch or (self.leading and self._knows(state)):
            return
        environment = self._environment
        is_new_epoch = state.leader_epoch > self.leader_epoch or not self.leading
        if is_new_epoch:
            self._drop_impossible(state)
        self._remember(state)
        self.isr = state.isr
        if is_new_epoch:
            self.acknowledged_end = Offset(0)
            self._epoch_start_offset = self.log.log_end_offset
            if len(state.replicas) > 1:
                self.log.assign_epoch_start(state.leader_epoch)
        if len(state.replicas) == 1:
            self.in_sync = None
        else:
            known = self.in_sync
            self.in_sync = InSyncReplicas(
                environment.broker_id,
                state.replicas,
                state.isr,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                epoch_start=self._epoch_start_offset,
                lag_s=environment.lag_s,
                now=environment.now(),
                is_confirmed=is_confirmed,
            )
            if known is not None and not is_new_epoch:
                for replica, follower in known.followers.items():
                    if replica in self.in_sync.followers:
                        self.in_sync.followers[replica] = follower
        self.leading = True
        environment.led_changes.note(self)
        if self.log.config.flush_before_ack and self.log.recovery_point < self.log.log_end_offset:
            self._flusher.mark(self)  # a follower's end is not synced; nothing is committed before it is
        self._confirm()
        self.advance()
        self._settle_deletions()

    def follow(self, state: PartitionImage) -> bool:
        """Another broker leads (or none): answer all waiting requests. Returns whether that is a new leader epoch."""
        if state.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        if is_new_epoch:
            self._drop_impossible(state)
        self._remember(state)
        self.isr = state.isr
        self.in_sync = None
        self.stop_leading()
        return is_new_epoch

    def _drop_impossible(self, state: PartitionImage) -> None:
        """Truncate unsynced records whose leader epoch has not begun.

        No checksum covers the leader epochs of batches, and those of a torn tail are arbitrary after a power
        failure. Unsynced records were not committed by this broker.
        """
        log = self.log
        start = log.leader_epochs.start_after(state.leader_epoch)
        if start is not None and start >= max(log.recovery_point, log.high_watermark):
            logger.warning(
                "%s: a record at offset %d names leader epoch %d, the partition is in epoch %d: records not synced "
                "from "
                "that offset on are discarded",
                self.topic_partition,
                start,
                log.latest_epoch,
                state.leader_epoch,
            )
            log.truncate_to(start)

    def _knows(self, state: PartitionImage) -> bool:
        return (state.leader_epoch, state.partition_epoch, state.replicas) == (
            self.leader_epoch,
            self.partition_epoch,
            self.replicas,
        )

    def _remember(self, state: PartitionImage) -> None:
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch, self.replicas = state.partition_epoch, state.replicas

    @property
    def min_in_sync(self) -> int:
        """How many replicas have to be in sync: `min.insync.replicas`, or as many as there are."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def has_reached_epoch_start(self) -> bool:
        """Whether the high watermark has reached the end offset at which this broker began to lead: before that,
        it may lie below an offset that clients have seen (KIP-207)."""
        return self.log.high_watermark >= self._epoch_start_offset

    def when_epoch_start_reached(self, waiter: "CommitWaiter") -> None:
        """Notify `waiter` when `has_reached_epoch_start` has become true: now, if it is."""
        if self.has_reached_epoch_start:
            waiter.committed(0)
        else:
            self._commit_waiters.appendleft((self._epoch_start_offset, 0, waiter))

    @property
    def owes_visibility(self) -> bool:
        """Whether records were acknowledged with acks=1 that consumers do not see yet, though they will as soon as they
        are synced. Requests for the end offset, or reads there, wait for that (ADR 19).

        Where there are followers, consumers wait for them to fetch, as in Kafka.
        """
        return self.in_sync is None and self.acknowledged_end > self.log.high_watermark

    def when_visible(self, waiter: "CommitWaiter") -> None:
        """Notify `waiter` when everything appended so far is committed: now, if it is. A sync may have ended since the
        caller looked, and nothing would notify `waiter` before the next one."""
        end = self.log.log_end_offset
        if end <= self.log.high_watermark:
            waiter.committed(0)
        else:
            self._commit_waiters.append((end, 0, waiter))

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed."""
        return self.log.high_watermark

    @property
    def replicated(self) -> Offset:
        """The offset below which everything is synced here and on every replica that is in sync.

        Nothing below it can be lost, even while too few replicas are in sync for it to count as committed: every later
        leader or in-sync replica has it, unless an eligible replica is elected (KIP-966).
        """
        log = self.log
        if self.in_sync is not None and not self.in_sync.is_confirmed:
            return log.high_watermark
        end = log.recovery_point if log.config.flush_before_ack else log.log_end_offset
        if self.in_sync is not None:
            end = self.in_sync.committed(end, self._environment.now(), self._environment.alive())
        return max(end, log.high_watermark)

    def append(
        self,
        records: "Buffer",
        origin: Origin = Origin.CLIENT,
        verification: "Verification | None" = None,
        *,
        require_verification: bool = False,
        checked: "CheckedBatches | None" = None,
        bears_next_epoch: bool = False,
    ) -> "AppendInfo":
        """Append batches as leader; arguments and errors are those of `PartitionLog.append_as_leader`.

        A batch after one that could not be written is refused with the same KafkaStorageError.
        """
        if self._refused:
            self._refused.check(records, self._environment.now())
        try:
            info = self.log.append_as_leader(
                records,
                self.leader_epoch,
                origin=origin,
                verification=verification,
                require_verification=require_verification,
                checked=checked,
                bears_next_epoch=bears_next_epoch,
            )
        except KafkaStorageError as error:
            self._refused.add(records, self._environment.now())
            if not self.refusing:  # once, not for every attempt of every producer
                self.refusing = True
                logger.error("%s; its producers are refused until it can be written again", sentence(error))
            raise
        if self._refused:
            self._refused.written(records)
        if self.refusing:
            self.refusing = False
            logger.warning("%s can be written again", self.topic_partition)
        self.appended_bytes += info.size_bytes
        if not info.duplicate:
            throughput = self.throughput
            throughput.produced_bytes += info.size_bytes
            throughput.produced_records += info.record_count
        self._wake_followers()
        if self.log.config.flush_before_ack:
            self._flusher.mark(self)
        else:
            self.advance()
            if self.log.log_end_offset - self.log.recovery_point >= self.log.config.flush_messages:
                self._flusher.mark(self)
            elif not self.log.may_roll_freely:
                self._flusher.mark_later(self)  # or the roll would have to sync the directory, on the loop
        return info

    def when_committed(self, end: Offset, key: int, waiter: "CommitWaiter") -> None:
        """Notify `waiter` when everything below `end` is committed; appends must register in order."""
        self._commit_waiters.append((end, key, waiter))

    def advance(self) -> None:
        """Move the high watermark as far as records are committed, and notify its waiters."""
        log = self.log
        committed = log.recovery_point if log.config.flush_before_ack else log.log_end_offset
        if committed <= log.high_watermark or not self.leading:
            return
        in_sync = self.in_sync
        if in_sync is not None:
            if not in_sync.is_confirmed:
                return
            if len(in_sync.isr) < self.min_in_sync:
                return  # so that the last in-sync replicas have all committed records (KIP-966)
            committed = in_sync.committed(committed, self._environment.now(), self._environment.alive())
            if committed <= log.high_watermark:
                return
        log.high_watermark = committed
        self._environment.led_changes.note(self)
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= committed:
            _, key, waiter = waiters.popleft()
            waiter.committed(key)
        if self.fetch_waiters:
            self._wake(self.fetch_waiters)

    # -- deleting records ---------------------------------------------------------------------------------------------

    @property
    def low_watermark(self) -> Offset:
        """The offset below which no replica that is in sync has records any more."""
        own = self.log.log_start_offset
        return own if self.in_sync is None else self.in_sync.least_log_start(own)

    def delete_records_before(self, offset: Offset) -> None:
        """Move the log start up, and have followers know at once. Raises OffsetOutOfRange above the high watermark."""
        self.log.delete_records_before(offset)
        self._wake_followers()

    def when_deleted(self, before: Offset, key: int, waiter: "CommitWaiter") -> None:
        """Notify `waiter` when the low watermark has come to `before`."""
        self._deletion_waiters.append((before, key, waiter))
        self._settle_deletions()

    def _settle_deletions(self) -> None:
        if not self._deletion_waiters:
            return
        reached = self.low_watermark
        waiting, self._deletion_waiters = self._deletion_waiters, []
        for before, key, waiter in waiting:
            if before <= reached:
                waiter.committed(key)
            else:
                self._deletion_waiters.append((before, key, waiter))

    # -- the leader's side of its followers --------------------------------------------------------------------------

    def fetched_by(self, replica: BrokerId, offset: Offset, log_start_offset: Offset, broker_epoch: int) -> None:
        """A follower has everything below `offset`: that may commit something, and bring it into the in-sync set.

        Raises `UnknownLeaderEpoch` for a broker without a replica: one of the two has not received the latest state
        yet.
        """
        in_sync = self.in_sync
        if in_sync is None or replica not in in_sync.followers:
            raise UnknownLeaderEpoch(
                f"broker {replica} is no follower of {self.topic_partition} in epoch {self.leader_epoch}"
            )
        environment = self._environment
        now = environment.now()
        moved = in_sync.fetched(
            replica,
            offset,
            log_start_offset=log_start_offset,
            end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now=now,
        )
        if replica not in in_sync.isr:
            self._take_in(replica, in_sync)
        if moved:
            self.advance()
        self._settle_deletions()

    def take_in_followers(self) -> None:
        """Propose to take in a follower that has come far enough, though it could not be taken in when it fetched."""
        if self.in_sync is not None and len(self.in_sync.isr) < len(self.replicas):
            for replica in self.in_sync.followers:
                self._take_in(replica, self.in_sync)

    def _take_in(self, replica: BrokerId, in_sync: InSyncReplicas) -> None:
        environment = self._environment
        high_watermark = self.log.high_watermark
        proposal = in_sync.propose_growth(replica, high_watermark, environment.alive(), environment.now())
        if proposal is not None:
            self._propose(proposal)

    def is_still_followed_by(
        self, replica: BrokerId, offset: Offset, log_start_offset: Offset, broker_epoch: int, quiet: QuietFetches
    ) -> bool:
        """As `fetched_by`, where nothing has changed since that follower's last fetch; False where that is not so.

        A follower's fetch looks at every partition, and in most of them nothing has happened.
        """
        in_sync = self.in_sync
        return (
            in_sync is not None
            and not self._deletion_waiters
            and in_sync.is_still_there(
                replica,
                offset,
                log_start_offset=log_start_offset,
                end_offset=self.log.log_end_offset,
                broker_epoch=broker_epoch,
                quiet=quiet,
            )
        )

    def leave_quiet_fetches(self, replica: BrokerId) -> None:
        """Count a follower no longer as following with every quiet fetch: it is looked at again."""
        if self.in_sync is not None:
            self.in_sync.leave_quiet_fetches(replica)

    def drop_out_of_sync_followers(self) -> None:
        """Propose an in-sync set without the followers that have lagged for too long, and stop waiting for candidates
        of the set that lag: without writes or fetches, no other event would do that."""
        if self.in_sync is not None:
            self._confirm()
            proposal = self.in_sync.propose_shrink(self.log.log_end_offset, self._environment.now())
            if proposal is not None:
                self._propose(proposal)
            self.advance()

    def _confirm(self) -> None:
        """Notify the controller that this broker leads, if needed, once all records that may be committed are
        synced."""
        log = self.log
        if self.in_sync is None or (log.config.flush_before_ack and log.recovery_point < self._epoch_start_offset):
            return
        proposal = self.in_sync.propose_confirmation()
        if proposal is not None:
            self._propose(proposal)

    def _propose(self, proposal: Proposal) -> None:
        self._environment.propose(self, proposal)

    def apply_isr(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> None:
        """The controller has answered a proposal.

        Under a quorum, a smaller set counts only when the metadata shows it, with the `min.insync.replicas` of that
        moment: by an earlier one this leader could commit what the controller believes is not committed (KIP-966).
        """
        if self._environment.in_sync_sets_are_shown() and not set(self.isr) <= set(isr):
            return
        if self.in_sync is not None and self.in_sync.accepted(isr, partition_epoch):
            self.isr, self.partition_epoch = isr, partition_epoch
            self._environment.led_changes.note(self)
            self.advance()
            self._settle_deletions()
            self.take_in_followers()

    # -- the follower's side -----------------------------------------------------------------------------------------

    def append_fetched(self, records: "Buffer") -> "AppendInfo":
        """Append what the leader has sent, to be synced later. Raises what `PartitionLog.append_as_follower` does."""
        info = self.log.append_as_follower(records)
        self.appended_bytes += info.size_bytes
        self.throughput.replicated_in_bytes += info.size_bytes
        self._flusher.mark_later(self)
        return info

    def settle_gap(self, gap: "EpochGap", end_before: "EpochEnd") -> None:
        """Note where an epoch begins, as the leader reports it, to be synced later."""
        self.log.leader_epochs.settle(gap, end_before)
        self._flusher.mark_later(self)

    def update_from_leader(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Take over up to where the leader's log is committed, and where it begins; kept within this log."""
        log = self.log
        before = log.high_watermark
        start = Offset(min(log_start_offset, high_watermark, log.log_end_offset))
        if start > log.log_start_offset:
            log.high_watermark = start
            log.delete_records_before(start)
        log.high_watermark = high_watermark
        if log.high_watermark != before and self.fetch_waiters:
            self._wake(self.fetch_waiters)

    def change_log(self, log: "PartitionLog", flusher: "GroupCommit") -> None:
        """`log` has taken the place of the one before, in another log directory, whose flusher this is."""
        self._flusher.forget(self)
        self.log, self._flusher = log, flusher
        self._environment.led_changes.note(self)
        flusher.mark(self)

    def update_config(self, config: "LogConfig") -> None:
        """The topic's settings have changed."""
        if config is not self.log.config:
            self.log.update_config(config)
            if config.flush_before_ack and self.log.recovery_point < self.log.log_end_offset:
                self._flusher.mark(self)
            self.advance()

    # -- the flusher's side (group_commit.Flushable) ----------------------------------------------------------------

    def prepare_flush(self) -> "FlushTicket | None":
        return self.log.prepare_flush()

    def flushed(self, ticket: "FlushTicket") -> None:
        """Note that the ticket's bytes are on disk; the high watermark may rise."""
        self.log.flushed(ticket)
        self._unsynced_since_ms = None
        self._confirm()
        self.advance()

    def flush_failed(self, ticket: "FlushTicket | None", error: Exception) -> None:
        """Fail the waiting requests; the next ticket writes data that may be lost again, before it syncs."""
        if ticket is not None:
            self.log.flush_failed(ticket)
        self.acknowledged_end = Offset(0)  # consumers need not wait for what may take long
        self._fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)

    def flush_cancelled(self, ticket: "FlushTicket") -> None:
        self.log.flush_cancelled(ticket)

    def mark_dirty(self) -> None:
        """Have what was appended synced in the next round."""
        self._flusher.mark(self)

    def stop_flushing(self) -> None:
        """Take no part in later rounds."""
        self._flusher.forget(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Sync the log if `flush.ms` has passed."""
        config = self.log.config
        if not config.flush_before_ack and self.log.recovery_point < self.log.log_end_offset:
            if self._unsynced_since_ms is None:
                self._unsynced_since_ms = now_ms
            elif now_ms - self._unsynced_since_ms >= config.flush_ms:
                self._flusher.mark(self)
        else:
            self._unsynced_since_ms = None

    def stop_leading(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """This broker no longer leads the partition (or the topic or the disk is gone): answer all waiting requests."""
        self.leading = False
        self.in_sync = None
        self._refused = RefusedProducers()
        self._fail_waiters(code)
        deletions, self._deletion_waiters = self._deletion_waiters, []
        for _, key, waiter in deletions:
            waiter.failed(key, code)
        self._wake_followers()

    def _wake_followers(self) -> None:
        changes = self._environment.led_changes
        changes.note(self)
        for waiting in changes.of_followers(self.replicas):
            self._wake(waiting)
        if self.follower_waiters:
            self._wake(self.follower_waiters)

    def _fail_waiters(self, code: ErrorCode) -> None:
        waiters, self._commit_waiters = self._commit_waiters, deque()
        for _, key, waiter in waiters:
            waiter.failed(key, code)
        self._wake(self.fetch_waiters)
