"""One partition this broker leads: its log, its high watermark, and who waits for it to move.

    log start          high watermark = durable end           log end
       |------------------------|--------------------------------|
        served to consumers      appended, not yet synced

With `flush.before.ack` (the default) the high watermark follows the synced end of the log, so a consumer never sees a
record that a crash could take back. Without it, it follows the log end, as in a Kafka cluster of one broker.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaStorageError, sentence
from ottla.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.log.producer_state import Origin

if TYPE_CHECKING:
    from ottla.config.log import LogConfig
    from ottla.log.flush import FlushTicket
    from ottla.log.partition_log import AppendInfo, PartitionLog
    from ottla.log.producer_state import Verification
    from ottla.records.batch import Buffer
    from ottla.replication.delayed import CommitWaiter, DelayedFetch
    from ottla.replication.group_commit import GroupCommit

logger = logging.getLogger(__name__)


class Partition:
    """Owned by the `ReplicaManager`; touched on the loop's thread only."""

    __slots__ = (
        "_commit_waiters",
        "_end_at_first",
        "_flusher",
        "_unsynced_since_ms",
        "_wake",
        "appended_bytes",
        "fetch_waiters",
        "isr",
        "leader_epoch",
        "leading",
        "log",
        "refusing",
        "replica_count",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: "PartitionLog",
        leader_epoch: LeaderEpoch,
        isr: tuple[BrokerId, ...],
        replica_count: int,
        flusher: "GroupCommit",
        wake: "Callable[[set[DelayedFetch]], None]",
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.replica_count = replica_count
        self.leading = True
        self.refusing = False
        self.appended_bytes = 0
        self.fetch_waiters: set[DelayedFetch] = set()
        self._commit_waiters: deque[tuple[Offset, int, CommitWaiter]] = deque()
        self._flusher = flusher
        self._wake = wake
        self._unsynced_since_ms: int | None = None
        self._end_at_first = log.log_end_offset

    @property
    def knows_its_end(self) -> bool:
        """Whether the high watermark has come to where the log ended when this broker began to lead it: before that,
        it may lie below what clients were told earlier (KIP-207)."""
        return self.log.high_watermark >= self._end_at_first

    def when_end_known(self, waiter: "CommitWaiter") -> None:
        """Tell `waiter` when `knows_its_end` has become true."""
        self._commit_waiters.appendleft((self._end_at_first, 0, waiter))

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed."""
        return self.log.high_watermark

    def append(
        self,
        records: "Buffer",
        origin: Origin = Origin.CLIENT,
        verification: "Verification | None" = None,
        *,
        require_verification: bool = False,
    ) -> "AppendInfo":
        """Append batches as leader; arguments and errors are those of `PartitionLog.append_as_leader`."""
        try:
            info = self.log.append_as_leader(
                records,
                self.leader_epoch,
                origin=origin,
                verification=verification,
                require_verification=require_verification,
            )
        except KafkaStorageError as error:
            if not self.refusing:  # once, not for every attempt of every producer
                self.refusing = True
                logger.error("%s; its producers are refused until it can be written again", sentence(error))
            raise
        if self.refusing:
            self.refusing = False
            logger.warning("%s can be written again", self.topic_partition)
        self.appended_bytes += info.size_bytes
        if self.log.config.flush_before_ack:
            self._flusher.mark(self)
        else:
            self.advance()
            if self.log.log_end_offset - self.log.recovery_point >= self.log.config.flush_messages:
                self._flusher.mark(self)
        return info

    def when_committed(self, end: Offset, key: int, waiter: "CommitWaiter") -> None:
        """Tell `waiter` when everything below `end` is committed; appends must register in order."""
        self._commit_waiters.append((end, key, waiter))

    def advance(self) -> None:
        """Move the high watermark to what is committed now, and tell those who wait for it."""
        log = self.log
        committed = log.recovery_point if log.config.flush_before_ack else log.log_end_offset
        if committed <= log.high_watermark:
            return
        log.high_watermark = committed
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= committed:
            _, key, waiter = waiters.popleft()
            waiter.committed(key)
        if self.fetch_waiters:
            self._wake(self.fetch_waiters)

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
        self.log.flushed(ticket)
        self._unsynced_since_ms = None
        self.advance()

    def flush_failed(self, ticket: "FlushTicket | None", error: Exception) -> None:
        """Those who wait are told; the next ticket writes again what may be lost, before it syncs."""
        if ticket is not None:
            self.log.flush_failed(ticket)
        self._release_waiters(ErrorCode.KAFKA_STORAGE_ERROR)

    def mark_dirty(self) -> None:
        """Have what was appended synced in the next round."""
        self._flusher.mark(self)

    def stop_flushing(self) -> None:
        """Take no part in later rounds."""
        self._flusher.forget(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Have the log synced if `flush.ms` says that it has waited long enough."""
        config = self.log.config
        if not config.flush_before_ack and self.log.recovery_point < self.log.log_end_offset:
            if self._unsynced_since_ms is None:
                self._unsynced_since_ms = now_ms
            elif now_ms - self._unsynced_since_ms >= config.flush_ms:
                self._flusher.mark(self)
        else:
            self._unsynced_since_ms = None

    def resign(self) -> None:
        """This broker leads the partition no more (or the topic is gone): answer everybody who waits."""
        self.leading = False
        self._release_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _release_waiters(self, code: ErrorCode) -> None:
        waiters, self._commit_waiters = self._commit_waiters, deque()
        for _, key, waiter in waiters:
            waiter.failed(key, code)
        self._wake(self.fetch_waiters)
