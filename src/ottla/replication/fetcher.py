"""Copies the partitions that this broker follows from those that lead them.

One task, one connection and one fetch session per leader: it asks for everything at once, and waits at the leader until
there is more. A fetch names the last epoch in the follower's log; a leader whose log went another way answers where the
two part, and the follower drops what it has beyond (KIP-101, KIP-279, KIP-595: the epochs decide, not the high
watermark, which may be behind what clients were promised).

Source: Kafka 3.9, `AbstractFetcherThread`, `ReplicaFetcherThread`.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.client.sockets import Connect
from ottla.errors import ApiError, ErrorCode, OttlaError, sentence
from ottla.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.replication.divergence import StartOver, Truncation, divergence, takes_back
from ottla.replication.follower_session import FIRST_EPOCH, FollowerSession, Key
from ottla.replication.leader_questions import (
    EARLIEST,
    EPOCH_END_VERSION,
    LATEST,
    LIST_OFFSETS_VERSION,
    epoch_end,
    epoch_ends,
    epoch_ends_request,
    listed_offset,
    offset_request,
)
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.decisions.throttles import Throttle
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
"""The newest of Kafka 3.9, which may lead what this broker follows."""
SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
LONGEST_TURN_S: Final = 0.01
"""The longest turn of the loop while many logs are truncated."""
FIRST_PAUSE_S: Final = 0.02
LONGEST_REST_S: Final = 0.5
"""Longest pause of a throttled partition, whose throttle may be removed at any time."""
REPEAT_S: Final = 0.0005
"""How long, for each partition that is copied, a fetch that waits is not given up again: the one after it has to name
all of them anew, at a cost for both brokers of a twentieth of that."""
EXPECTED_S: Final = 1.0
"""For how long more partitions are expected after one that was added; until then a fetch waits `SHORT_WAIT_S` only,
and is not given up for the next one."""
SHORT_WAIT_S: Final = 0.05
LONGEST_ASKING_S: Final = 0.1
"""For how long the leader is asked about epochs, one question after the other, before it is asked for records again."""
LOOK_AT_ALL_S: Final = 10.0
"""Interval of full fetches: retention moves a log's start offset silently, so the leader learns of it this late."""

Address = Callable[[BrokerId], tuple[str, int] | None]
"""Where a broker is reached by others; None for one that is not alive."""


class _Copy:
    """One partition that is copied, in one leader epoch."""

    __slots__ = (
        "has_caught_up",
        "is_compared",
        "is_failing",
        "key",
        "leader_epoch",
        "not_before",
        "parted_at",
        "partition",
        "pause_s",
    )

    def __init__(self, partition: "Partition", topic_id: TopicId, *, is_in_sync: bool) -> None:
        self.partition = partition
        self.key: Key = (topic_id, int(partition.topic_partition.partition))
        self.leader_epoch = partition.leader_epoch
        self.not_before = 0.0
        """When it may be asked for again, after an error."""
        self.pause_s = FIRST_PAUSE_S
        self.is_compared = False
        """Whether this log is known to be the leader's, as far as both reach."""
        self.is_failing = False
        """Whether what was fetched last could not be taken in."""
        self.parted_at: EpochEndOffset | None = None
        """The leader's last answer on where this log diverges from its own."""
        self.has_caught_up = is_in_sync
        """Whether it had all that was committed when it was answered last: such a one is not throttled."""

    @property
    def is_current(self) -> bool:
        return not self.partition.leading and self.partition.leader_epoch == self.leader_epoch


class LeaderFetcher:
    """Copies from one leader for as long as there is anything to copy."""

    def __init__(
        self,
        leader: BrokerId,
        config: "BrokerConfig",
        address: Address,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        *,
        connect: Connect,
        throttle: "Throttle",
        threads: Executor,
        full_directories: Callable[[], Collection[Path]] = tuple,
        start_over: StartOver,
        may_begin: asyncio.Event,
    ) -> None:
        """`may_begin` is set once the first fetch may be sent."""
        self._leader = leader
        self._may_begin = may_begin
        self._threads = threads
        self._config = config
        self._address = address
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._connect = connect
        self._throttle = throttle
        self._truncation = Truncation(start_over)
        self._full_directories = full_directories
        self._copies: dict[TopicPartition, _Copy] = {}
        self._by_key: dict[Key, _Copy] = {}
        """The same, as answers name them."""
        self._watched: dict[Key, _Copy] = {}
        """Those that may have something to say with the next fetch, or may not be asked for: a few of thousands."""
        self._look_at_all_at = 0.0
        self._full: Collection[Path] = ()
        self._client: AsyncConnection | None = None
        self._changed = asyncio.Event()
        self._round: asyncio.Task[FetchResponse] | None = None
        """The fetch that waits at the leader."""
        self._is_interrupted = False
        self._has_new = False
        """Whether there are copies that no fetch has named yet."""
        self._interrupts_from = 0.0
        """When a fetch that waits may be given up again."""
        self._expects_until = 0.0
        """Until when more partitions are expected."""
        self._waits_shortly = False
        """Whether the fetch that waits at the leader ends soon in any case."""
        self._refused: dict[int, list[TopicPartition]] = {}
        """Partitions of which the last answer had an error, by its code."""
        self._with_gaps: dict[Key, _Copy] = {}
        """Those whose logs lack where an epoch begins: they are fetched again when the leader has answered that."""
        self._session = FollowerSession()
        self._task = supervised(loop, self._run(), f"fetcher of broker {leader}")

    @property
    def is_idle(self) -> bool:
        return not self._copies

    def add(self, partition: "Partition", topic_id: TopicId) -> None:
        """Copy one more. A fetch that waits at the leader knows nothing of it, and is given up.

        That is not done for each of thousands that come one after the other: it would take the square of their number.
        """
        self._expects_until = self._loop.time() + EXPECTED_S
        is_in_sync = self._config.node_id in partition.isr
        copy = _Copy(partition, topic_id, is_in_sync=is_in_sync)
        self._copies[partition.topic_partition] = self._by_key[copy.key] = self._watched[copy.key] = copy
        self._changed.set()
        if not self._has_new:
            self._has_new = True
            wait_s = self._interrupts_from - self._loop.time()
            if wait_s > 0:
                self._loop.call_later(wait_s, self._interrupt)  # once for all that come until then
            else:
                self._loop.call_soon(self._interrupt)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop copying a partition, if it was copied."""
        copy = self._copies.pop(topic_partition, None)
        if copy is not None:
            del self._by_key[copy.key]
            self._watched.pop(copy.key, None)
            self._with_gaps.pop(copy.key, None)
            self._session.drop(copy.key)

    def close(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self._task])

    def _interrupt(self) -> None:
        if self._round is not None and self._has_new and not self._waits_shortly:
            self._is_interrupted = True
            self._interrupts_from = self._loop.time() + len(self._copies) * REPEAT_S
            self._round.cancel()

    # -- rounds ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            await self._may_begin.wait()
            while True:
                self._changed.clear()
                try:
                    await self._fetch_once()
                    pause_s = FIRST_PAUSE_S
                except BrokerUnavailable as error:
                    log.info("nothing can be copied from broker %d at present: %s", self._leader, error)
                    await self._rest(pause_s)
                    pause_s = min(pause_s * 2, self._config.replica_fetch_backoff_ms / 1000)
                except Exception:  # a defect; but without this task nothing would be copied any more
                    log.exception("copying from broker %d failed, and will be tried again", self._leader)
                    await self._rest(self._config.replica_fetch_backoff_ms / 1000)
        finally:
            if self._client is not None:
                self._client.close()

    async def _rest(self, seconds: float) -> None:
        """Wait, but no longer than until there is something else to copy."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _fetch_once(self) -> None:
        request, rest_s = self._next_request(self._loop.time())
        if request is None and self._with_gaps:
            await self._ask_for_gaps()
            return
        if request is None:
            await self._rest(min(rest_s, self._config.replica_fetch_backoff_ms / 1000))
            return
        try:
            client = self._opened()
        except BrokerUnavailable:
            self._session.reset()  # the request was not sent: the next one has to repeat its partitions
            raise
        self._round = self._loop.create_task(client.ask(request, FETCH_VERSION, timeout_s=self._timeout_s))
        told = self._session.told
        is_answered = False
        try:
            response = await self._round
            is_answered = not response.error_code
        except asyncio.CancelledError:
            if self._is_interrupted and not self._task.cancelling():
                return  # given up for the sake of what has been added
            self._round.cancel()
            raise
        finally:
            self._round = None
            self._is_interrupted = False
            if not is_answered:
                self._session.reset()
        if response.error_code in SESSION_ERRORS:
            self._session.forget()  # the leader was started anew, or has given the place to another
            return
        if response.error_code:
            raise BrokerUnavailable(f"broker {self._leader} says {ErrorCode(response.error_code).name}")
        self._session.answered(response.session_id)
        parted: list[tuple[_Copy, PartitionData, Offset]] = []
        try:
            for topic in response.responses:
                for data in topic.partitions:
                    key = (TopicId(topic.topic_id), data.partition_index)
                    copy, asked = self._by_key.get(key), told.get(key)
                    if copy is None:
                        continue
                    self._watched[key] = copy
                    if asked is not None and copy.is_current:
                        if data.diverging_epoch is not None and not data.error_code:
                            parted.append((copy, data, Offset(asked.fetch_offset)))
                        else:
                            await self._take_in(copy, data, Offset(asked.fetch_offset))
            if parted:
                await self._truncate_all(parted)
            self._note_refused()
            await self._ask_for_gaps()
        except BaseException:
            self._session.reset()  # lost changes would otherwise be sent again only after the next change
            raise

    def _is_wanted(self, copy: _Copy) -> bool:
        """Whether it is still to be copied from this leader, in this epoch."""
        return self._by_key.get(copy.key) is copy and copy.is_current

    def _wait_s(self, copy: _Copy, now: float) -> float:
        """How long not to ask for a partition: after an error, or so as to copy no faster than is allowed."""
        wait_s = copy.not_before - now
        if not copy.has_caught_up:
            throttled_s = self._throttle.wait_s(copy.partition.topic_partition, now)
            wait_s = max(wait_s, min(throttled_s, LONGEST_REST_S))
        return wait_s

    def _opened(self) -> AsyncConnection:
        address = self._address(self._leader)
        if address is None:
            raise BrokerUnavailable(f"broker {self._leader} is not alive")
        if self._client is None or (self._client.host, self._client.port) != address:
            if self._client is not None:
                self._client.close()
            name = f"broker-{self._config.node_id}-fetcher-0"
            self._client = AsyncConnection(*address, name, connect=self._connect)
        return self._client

    def _next_request(self, now: float) -> tuple[FetchRequest | None, float]:
        """The fetch of everything that is due, None if nothing is; and in how many seconds something else will be.

        It is made for every fetch, and most partitions have nothing to say: what is done for each of them counts.
        """
        self._has_new = False
        session, full = self._session, self._full_directories()
        topics: dict[TopicId, FetchTopic] = {}
        due, rest_s = len(self._copies), math.inf
        for copy in self._to_look_at(now, full):
            log_of_copy = copy.partition.log
            if not copy.is_current or (full and log_of_copy.log_dir in full):
                session.drop(copy.key)  # a leader waits for a follower that fetches and has had everything a moment ago
                due -= 1
                continue
            if copy.not_before > now or not copy.has_caught_up:
                wait_s = self._wait_s(copy, now)
                if wait_s > 0:
                    rest_s = min(rest_s, wait_s)
                    session.drop(copy.key)
                    due -= 1
                    continue
            if copy.key in self._with_gaps:
                rest_s = 0.0
                session.drop(copy.key)
                due -= 1
                continue
            if not log_of_copy.is_cut_synced:
                copy.partition.mark_dirty()
                rest_s = min(rest_s, FIRST_PAUSE_S)
                session.drop(copy.key)
                due -= 1
                continue
            told = session.told.get(copy.key)
            end, epoch, start = log_of_copy.log_end_offset, log_of_copy.latest_epoch, log_of_copy.log_start_offset
            if (
                told is not None
                and told.fetch_offset == end
                and told.last_fetched_epoch == epoch
                and told.log_start_offset == start
                and told.current_leader_epoch == copy.leader_epoch
            ):
                if copy.has_caught_up:
                    del self._watched[copy.key]
                continue
            topic_id, number = copy.key
            changed = FetchPartition(
                partition=number,
                current_leader_epoch=copy.leader_epoch,
                fetch_offset=end,
                last_fetched_epoch=epoch,
                log_start_offset=start,
                partition_max_bytes=self._config.replica_fetch_max_bytes,
            )
            session.tell(copy.key, changed)
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(changed)
        if not due:
            return None, rest_s
        wait_s = min(self._config.replica_fetch_wait_max_ms / 1000, rest_s)
        if now < self._expects_until:
            wait_s = min(wait_s, SHORT_WAIT_S)
        self._waits_shortly = wait_s <= SHORT_WAIT_S
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._config.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=int(wait_s * 1000),
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=session.forgotten(),
        )
        return request, rest_s

    def _to_look_at(self, now: float, full: Collection[Path]) -> list[_Copy]:
        """The copies that may have something to say: all now and then, and when the session begins anew."""
        if now >= self._look_at_all_at or self._session.epoch == FIRST_EPOCH or full != self._full:
            self._look_at_all_at = now + LOOK_AT_ALL_S
            self._full = full
            self._watched = dict(self._by_key)
        return list(self._watched.values())

    # -- what comes back ---------------------------------------------------------------------------------------------

    async def _take_in(self, copy: _Copy, data: PartitionData, start: Offset) -> None:
        partition = copy.partition
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                if not await self._find_range(copy):
                    self._delay(copy)
                    return
            elif data.error_code:
                self._refused.setdefault(data.error_code, []).append(partition.topic_partition)
                self._delay(copy)
                return
            elif data.diverging_epoch is not None:
                self._truncation.to_divergence(partition, data.diverging_epoch)
                if data.diverging_epoch == copy.parted_at:  # what the leader's epochs contradict was copied from it
                    copy.not_before = self._loop.time() + self._config.replica_fetch_backoff_ms / 1000
                copy.parted_at = data.diverging_epoch
            elif partition.log.log_end_offset == start:
                if not copy.is_compared:
                    copy.is_compared = True
                    self._truncation.drop_incomparable(partition, Offset(data.log_start_offset))
                if data.records:
                    partition.append_fetched(data.records)
                    self._throttle.spend(partition.topic_partition, len(data.records), self._loop.time())
                copy.has_caught_up = partition.log.log_end_offset >= data.high_watermark
                partition.update_from_leader(Offset(data.high_watermark), Offset(data.log_start_offset))
                if partition.log.leader_epochs.gaps:
                    self._with_gaps[copy.key] = copy
                    return
            self._note_success(copy)
        except BrokerUnavailable:
            raise
        except OttlaError as error:
            self._note_failure(copy, error)

    def _note_success(self, copy: _Copy) -> None:
        copy.pause_s = FIRST_PAUSE_S
        if copy.is_failing:
            copy.is_failing = False
            log.warning("%s is copied from broker %d again", copy.partition.topic_partition, self._leader)

    def _note_failure(self, copy: _Copy, error: OttlaError) -> None:
        if not copy.is_failing:  # once, not for every attempt
            copy.is_failing = True
            log.error(
                "%s cannot be copied from broker %d: %s; it is tried again until it can",
                copy.partition.topic_partition,
                self._leader,
                sentence(error),
            )
        self._delay(copy)

    def _note_refused(self) -> None:
        """One line for all partitions with the same error: there may be thousands, which the leader is to make."""
        refused, self._refused = self._refused, {}
        for code, partitions in refused.items():
            name, more = ErrorCode(code).name, len(partitions) - 1
            of_others = f" and {more} more" if more else ""
            log.info("%s%s: broker %d answers %s; asking again", partitions[0], of_others, self._leader, name)

    def _delay(self, copy: _Copy) -> None:
        """The leader does not know yet that it is, or knows better, or the disk is in trouble: ask again later, at the
        same time for all that were asked for within a moment."""
        copy.not_before = math.ceil((self._loop.time() + copy.pause_s) / FIRST_PAUSE_S) * FIRST_PAUSE_S
        copy.pause_s = min(copy.pause_s * 2, self._config.replica_fetch_backoff_ms / 1000)

    async def _truncate_all(self, parted: list[tuple[_Copy, PartitionData, Offset]]) -> None:
        """Truncate what parts from the leader's logs: everything that this broker led before, if it comes back.

        The checkpoints of a log directory are written once for all its logs, and what is known of producers is read
        again afterwards, both in threads; in between, the loop is given back every few milliseconds.
        """
        expecting: dict[Path, list[PartitionLog]] = {}
        for copy, data, _ in parted:
            own = copy.partition.log
            assert data.diverging_epoch is not None
            offset = divergence(own, data.diverging_epoch)
            if not takes_back(own, offset) and own.expect_cut(offset):
                expecting.setdefault(own.log_dir, []).append(own)
        try:
            for logs in expecting.values():
                try:
                    await self._loop.run_in_executor(self._threads, logs[0].prepare_checkpoints().write)
                except OSError as error:  # then each truncation writes them, and reports it if it cannot
                    log.warning("cannot write the checkpoints of %d partitions at once: %s", len(logs), sentence(error))
                else:
                    for own in logs:
                        own.cut_is_written()
            began = self._loop.time()
            for copy, data, start in parted:
                if self._is_wanted(copy):  # it may be led here by now
                    await self._take_in(copy, data, start)
                if self._loop.time() - began > LONGEST_TURN_S:
                    await asyncio.sleep(0)
                    began = self._loop.time()
        finally:
            for logs in expecting.values():
                for own in logs:
                    own.end_cut()
        for copy, _, _ in parted:
            if copy.partition.log.has_stale_producers:
                try:
                    await self._loop.run_in_executor(self._threads, copy.partition.log.load_producers)
                except OttlaError as error:
                    log.error(
                        "loading the producers of a log failed: %s", sentence(error)
                    )  # tried again with the next append

    async def _find_range(self, copy: _Copy) -> bool:
        """This log ends where the leader has nothing, or nothing any more.

        Either the leader's log ends before it (an unclean election), or it begins after it (retention). If neither is
        so by now, the answer is False, and the leader is to be asked again after a pause.
        """
        partition = copy.partition
        own = partition.log
        leader_end = await self._leader_offset(copy, LATEST)
        if not self._is_wanted(copy):
            return True  # it may be led here by now
        if leader_end < own.log_end_offset:
            self._truncation.cut(partition, leader_end, f"the leader's log ends at {leader_end}")
            return True
        leader_start = await self._leader_offset(copy, EARLIEST)
        if not self._is_wanted(copy):
            return True
        if leader_start > own.log_end_offset:
            log.warning(
                "%s: the leader's log begins at %d, and this one ends at %d; copies it from there",
                partition.topic_partition,
                leader_start,
                own.log_end_offset,
            )
            own.truncate_fully_and_start_at(leader_start)
            return True
        return False

    async def _ask_for_gaps(self) -> None:
        """Ask where the epochs begin of whose first records compaction has left nothing: these logs may be compared
        with those of followers one day.

        One question is about all of them. A log with many such epochs takes many, one after the other: between them the
        others are fetched. Raises `BrokerUnavailable`.
        """
        until = self._loop.time() + LONGEST_ASKING_S
        while self._with_gaps and self._loop.time() < until:
            self._with_gaps = {key: copy for key, copy in self._with_gaps.items() if self._has_gaps(copy)}
            asked = {
                copy.partition.topic_partition: (copy, copy.partition.log.leader_epochs.gaps[-1])
                for copy in self._with_gaps.values()
            }
            if not asked:
                return
            request = epoch_ends_request(
                self._config.node_id,
                {at: (copy.leader_epoch, LeaderEpoch(gap.epoch - 1)) for at, (copy, gap) in asked.items()},
            )
            answer = await self._opened().ask(request, EPOCH_END_VERSION, timeout_s=self._timeout_s)
            ends = epoch_ends(answer)
            for at, (copy, gap) in asked.items():
                if not self._is_wanted(copy):
                    continue
                try:
                    copy.partition.settle_gap(gap, epoch_end(ends.get(at), self._leader))
                except ApiError as error:
                    del self._with_gaps[copy.key]  # fetched again after a pause, and then asked about again
                    self._note_failure(copy, error)
                else:
                    if not copy.partition.log.leader_epochs.gaps:
                        self._note_success(copy)
        self._with_gaps = {key: copy for key, copy in self._with_gaps.items() if self._has_gaps(copy)}

    def _has_gaps(self, copy: _Copy) -> bool:
        return self._is_wanted(copy) and bool(copy.partition.log.leader_epochs.gaps)

    async def _leader_offset(self, copy: _Copy, which: int) -> Offset:
        """Where the leader's log ends or begins. Raises `ApiError` if it does not say, `BrokerUnavailable`."""
        asked = offset_request(self._config.node_id, copy.partition.topic_partition, copy.leader_epoch, which)
        answer = await self._opened().ask(asked, LIST_OFFSETS_VERSION, timeout_s=self._timeout_s)
        return listed_offset(answer, self._leader)

    @property
    def _timeout_s(self) -> float:
        return self._config.replica_socket_timeout_ms / 1000
