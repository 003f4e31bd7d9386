"""Copies the partitions that this broker follows from those that lead them.

One task, one connection and one fetch session per leader: it asks for everything at once, and waits at the leader until
there is more. A fetch names the last epoch in the follower's log; a leader whose log went another way answers where the
two part, and the follower drops what it has beyond (KIP-101, KIP-279, KIP-595: the epochs decide, not the high
watermark, which may be behind what clients were promised).

Source: Kafka 3.9, `AbstractFetcherThread`, `ReplicaFetcherThread`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ApiError, ErrorCode, OttlaError, sentence
from ottla.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.peer.client import PeerClient, PeerUnavailable
from ottla.peer.sockets import Connect
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.replication.partition import Partition
    from ottla.replication.throttles import Throttle

log = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
"""The newest of Kafka 3.9, which may lead what this broker follows."""
LIST_OFFSETS_VERSION: Final = 8
LATEST, EARLIEST = -1, -2
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
FIRST_PAUSE_S: Final = 0.02
LONGEST_REST_S: Final = 0.5
"""Of a partition that is throttled, which may be so no more at any time."""
NO_EPOCH: Final = -1

Address = Callable[[BrokerId], tuple[str, int] | None]
"""Where a broker is reached by others; None for one that is not alive."""


class _Copy:
    """One partition that is copied, in one leader epoch."""

    __slots__ = ("has_caught_up", "is_failing", "leader_epoch", "not_before", "partition", "pause_s", "topic_id")

    def __init__(self, partition: "Partition", topic_id: TopicId, *, is_in_sync: bool) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.leader_epoch = partition.leader_epoch
        self.not_before = 0.0
        """When it may be asked for again, after an error."""
        self.pause_s = FIRST_PAUSE_S
        self.is_failing = False
        """Whether what was fetched last could not be taken in."""
        self.has_caught_up = is_in_sync
        """Whether it had all that was committed when it was answered last: such a one is not throttled."""

    @property
    def is_current(self) -> bool:
        return not self.partition.leading and self.partition.leader_epoch == self.leader_epoch


class _Session:
    """An incremental fetch session at the leader (KIP-227): what it knows, so that only changes need be said."""

    __slots__ = ("_told", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._told: dict[tuple[TopicId, int], FetchPartition] = {}

    def changes(
        self, wanted: dict[tuple[TopicId, int], FetchPartition]
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What of the wanted is not known there, and what is known there and not wanted any more."""
        topics: dict[TopicId, FetchTopic] = {}
        for (topic_id, partition), told in wanted.items():
            if self._told.get((topic_id, partition)) != told:
                topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[])).partitions.append(told)
        forgotten: dict[TopicId, ForgottenTopic] = {}
        for topic_id, partition in self._told.keys() - wanted.keys():
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(
                partition
            )
        self._told = wanted
        return list(topics.values()), list(forgotten.values())

    def answered(self, session_id: int) -> None:
        """The leader keeps the session, or has no room for one."""
        if session_id == NO_SESSION:
            self.forget()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Say everything with the next fetch. It names the session that it replaces, or the leader would keep both."""
        self.epoch, self._told = FIRST_EPOCH, {}

    def forget(self) -> None:
        """The leader knows nothing of it: say everything, too."""
        self.session_id = NO_SESSION
        self.reset()


class ReplicaFetchers:
    """One fetcher for each broker that this one follows. On the loop's thread."""

    def __init__(
        self,
        config: "BrokerConfig",
        address: Address,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        *,
        connect: Connect,
        throttle: "Throttle",
        full_directories: Callable[[], Collection[Path]] = tuple,
    ) -> None:
        self._broker_id = config.node_id
        self._new_fetcher: Callable[[BrokerId], LeaderFetcher] = lambda leader: LeaderFetcher(
            leader,
            config,
            address,
            broker_epoch,
            loop,
            connect=connect,
            throttle=throttle,
            full_directories=full_directories,
        )
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}
        self._sources: dict[TopicPartition, BrokerId] = {}
        self._is_closed = False

    def follow(self, partition: "Partition", topic_id: TopicId) -> None:
        """Copy from `partition.leader` from now on, in its leader epoch."""
        self.stop(partition)
        leader = partition.leader
        if self._is_closed or leader < 0 or leader == self._broker_id:
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._new_fetcher(leader)
        self._sources[partition.topic_partition] = leader
        fetcher.add(partition, topic_id)

    def stop(self, partition: "Partition") -> None:
        """Copy it no more."""
        leader = self._sources.pop(partition.topic_partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(partition.topic_partition)
        if fetcher.is_idle:
            del self._fetchers[leader]
            fetcher.close()

    async def close(self) -> None:
        """Stop copying for good; what has been fetched is in the logs."""
        self._is_closed = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._sources.clear()
        for fetcher in fetchers:
            fetcher.close()
        await asyncio.gather(*(fetcher.ended() for fetcher in fetchers))


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
        full_directories: Callable[[], Collection[Path]] = tuple,
    ) -> None:
        self._leader = leader
        self._config = config
        self._address = address
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._connect = connect
        self._throttle = throttle
        self._full_directories = full_directories
        self._copies: dict[TopicPartition, _Copy] = {}
        self._client: PeerClient | None = None
        self._changed = asyncio.Event()
        self._round: asyncio.Task[FetchResponse] | None = None
        """The fetch that waits at the leader."""
        self._is_interrupted = False
        self._session = _Session()
        self._task = loop.create_task(self._run(), name=f"fetcher of broker {leader}")

    @property
    def is_idle(self) -> bool:
        return not self._copies

    def add(self, partition: "Partition", topic_id: TopicId) -> None:
        """Copy one more. A fetch that waits at the leader knows nothing of it, and is given up."""
        is_in_sync = self._config.node_id in partition.isr
        self._copies[partition.topic_partition] = _Copy(partition, topic_id, is_in_sync=is_in_sync)
        if not self._changed.is_set():
            self._changed.set()
            self._loop.call_soon(self._interrupt)  # once for all that come in this turn

    def remove(self, topic_partition: TopicPartition) -> None:
        self._copies.pop(topic_partition, None)

    def close(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        await asyncio.wait([self._task])

    def _interrupt(self) -> None:
        if self._round is not None:
            self._is_interrupted = True
            self._round.cancel()

    # -- rounds ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                self._changed.clear()
                try:
                    await self._fetch_once()
                    pause_s = FIRST_PAUSE_S
                except PeerUnavailable as error:
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
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return

    async def _fetch_once(self) -> None:
        now = self._loop.time()
        full = self._full_directories()
        waits = {
            tp: self._wait_s(copy, now)
            for tp, copy in self._copies.items()
            if copy.is_current and not (full and copy.partition.log.directory.parent in full)
        }  # a leader waits for a follower that fetches and has had everything a moment ago
        due = {tp: self._copies[tp] for tp, wait_s in waits.items() if wait_s <= 0}
        rests = [wait_s for wait_s in waits.values() if wait_s > 0]
        if not due:
            await self._rest(min(rests, default=self._config.replica_fetch_backoff_ms / 1000))
            return
        max_wait_ms = min([self._config.replica_fetch_wait_max_ms, *(int(rest * 1000) for rest in rests)])
        starts = {tp: copy.partition.log.log_end_offset for tp, copy in due.items()}
        request = self._request(due, starts, max_wait_ms)
        client = self._opened()
        self._round = self._loop.create_task(
            client.ask(request, FETCH_VERSION, timeout_s=self._config.replica_socket_timeout_ms / 1000)
        )
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
            raise PeerUnavailable(f"broker {self._leader} says {ErrorCode(response.error_code).name}")
        self._session.answered(response.session_id)
        by_id: dict[tuple[UUID, int], _Copy] = {(copy.topic_id, tp.partition): copy for tp, copy in due.items()}
        try:
            for topic in response.responses:
                for data in topic.partitions:
                    copy = by_id.get((topic.topic_id, data.partition_index))
                    if copy is not None and self._is_wanted(copy):
                        await self._take_in(copy, data, starts[copy.partition.topic_partition])
        except BaseException:
            self._session.reset()  # what was not taken in would not be said again before it changes
            raise

    def _is_wanted(self, copy: _Copy) -> bool:
        """Whether it is still to be copied from this leader, in this epoch."""
        return self._copies.get(copy.partition.topic_partition) is copy and copy.is_current

    def _wait_s(self, copy: _Copy, now: float) -> float:
        """How long not to ask for a partition: after an error, or so as to copy no faster than is allowed."""
        wait_s = copy.not_before - now
        if not copy.has_caught_up:
            throttled_s = self._throttle.wait_s(copy.partition.topic_partition, now)
            wait_s = max(wait_s, min(throttled_s, LONGEST_REST_S))
        return wait_s

    def _opened(self) -> PeerClient:
        address = self._address(self._leader)
        if address is None:
            raise PeerUnavailable(f"broker {self._leader} is not alive")
        if self._client is None or (self._client.host, self._client.port) != address:
            if self._client is not None:
                self._client.close()
            name = f"broker-{self._config.node_id}-fetcher-0"
            self._client = PeerClient(*address, name, connect=self._connect)
        return self._client

    def _request(
        self, due: dict[TopicPartition, _Copy], starts: dict[TopicPartition, Offset], max_wait_ms: int
    ) -> FetchRequest:
        wanted = {
            (copy.topic_id, int(tp.partition)): FetchPartition(
                partition=tp.partition,
                current_leader_epoch=copy.leader_epoch,
                fetch_offset=starts[tp],
                last_fetched_epoch=copy.partition.log.latest_epoch,
                log_start_offset=copy.partition.log.log_start_offset,
                partition_max_bytes=self._config.replica_fetch_max_bytes,
            )
            for tp, copy in due.items()
        }
        topics, forgotten = self._session.changes(wanted)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._config.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=max_wait_ms,
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # -- what comes back ---------------------------------------------------------------------------------------------

    async def _take_in(self, copy: _Copy, data: PartitionData, start: Offset) -> None:
        partition = copy.partition
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._find_range(copy)
            elif data.error_code:
                log.info(
                    "%s: broker %d answers %s; it is asked again in %.2f s",
                    partition.topic_partition,
                    self._leader,
                    ErrorCode(data.error_code).name,
                    copy.pause_s,
                )
                self._delay(copy)
                return
            elif data.diverging_epoch is not None:
                self._truncate(partition, data.diverging_epoch)
            elif partition.log.log_end_offset == start:
                if data.records:
                    partition.append_fetched(data.records)
                    self._throttle.spend(partition.topic_partition, len(data.records), self._loop.time())
                copy.has_caught_up = partition.log.log_end_offset >= data.high_watermark
                partition.leader_says(Offset(data.high_watermark), Offset(data.log_start_offset))
            copy.pause_s = FIRST_PAUSE_S
            if copy.is_failing:
                copy.is_failing = False
                log.warning("%s is copied from broker %d again", partition.topic_partition, self._leader)
        except PeerUnavailable:
            raise
        except OttlaError as error:
            if not copy.is_failing:  # once, not for every attempt
                copy.is_failing = True
                log.error(
                    "%s cannot be copied from broker %d: %s; it is tried again until it can",
                    partition.topic_partition,
                    self._leader,
                    sentence(error),
                )
            self._delay(copy)

    def _delay(self, copy: _Copy) -> None:
        """The leader does not know yet that it is, or knows better, or the disk is in trouble: ask again later."""
        copy.not_before = self._loop.time() + copy.pause_s
        copy.pause_s = min(copy.pause_s * 2, self._config.replica_fetch_backoff_ms / 1000)

    def _truncate(self, partition: "Partition", leaders: EpochEndOffset) -> None:
        """Drop what the leader does not have: beyond the last epoch that both know, as far as the leader has it.

        If this log does not know the leader's epoch, what it has of earlier ones is kept and compared once more.
        """
        own = partition.log
        found = own.end_offset_for_epoch(LeaderEpoch(leaders.epoch))
        if found.epoch == NO_EPOCH:
            offset = Offset(min(leaders.end_offset, own.log_end_offset))
        else:
            offset = Offset(min(leaders.end_offset, found.end_offset, own.log_end_offset))
        self._cut(partition, offset, f"it parts from the leader's log in epoch {leaders.epoch}")

    def _cut(self, partition: "Partition", offset: Offset, reason: str) -> None:
        own = partition.log
        if offset >= own.log_end_offset:
            own.truncate_to(offset)  # there may be an epoch without records to forget
            return
        how = log.warning if offset < own.high_watermark else log.info
        how(
            "%s: %s; drops offsets from %d to %d, its high watermark being %d",
            partition.topic_partition,
            reason,
            offset,
            own.log_end_offset - 1,
            own.high_watermark,
        )
        own.truncate_to(offset)

    async def _find_range(self, copy: _Copy) -> None:
        """This log ends where the leader has nothing, or nothing any more.

        Either the leader's log ends before it (an unclean election), or it begins after it (retention).
        """
        partition = copy.partition
        own = partition.log
        leader_end = await self._leader_offset(copy, LATEST)
        if not self._is_wanted(copy):
            return  # it may be led here by now
        if leader_end < own.log_end_offset:
            self._cut(partition, leader_end, f"the leader's log ends at {leader_end}")
            return
        leader_start = await self._leader_offset(copy, EARLIEST)
        if leader_start > own.log_end_offset and self._is_wanted(copy):
            log.warning(
                "%s: the leader's log begins at %d, and this one ends at %d; copies it from there",
                partition.topic_partition,
                leader_start,
                own.log_end_offset,
            )
            own.truncate_fully_and_start_at(leader_start)

    async def _leader_offset(self, copy: _Copy, which: int) -> Offset:
        """Where the leader's log ends or begins. Raises `ApiError` if it does not say, `PeerUnavailable`."""
        tp = copy.partition.topic_partition
        request = ListOffsetsRequest(
            replica_id=self._config.node_id,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=tp.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=tp.partition, current_leader_epoch=copy.leader_epoch, timestamp=which
                        )
                    ],
                )
            ],
        )
        timeout_s = self._config.replica_socket_timeout_ms / 1000
        response = await self._opened().ask(request, LIST_OFFSETS_VERSION, timeout_s=timeout_s)
        found = response.topics[0].partitions[0]
        if found.error_code:
            code = ErrorCode(found.error_code)
            raise ApiError(code, f"broker {self._leader} does not say where its log ends and begins: {code.name}")
        return Offset(found.offset)
