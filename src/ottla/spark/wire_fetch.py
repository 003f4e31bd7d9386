"""Fetches from the leader of one partition, so that `ottla.spark.columns` has the bytes of whole responses.

Fetch is version 13 where the broker has it: it names the topic by its id, so that a topic deleted and made again is
never taken for the old one (KIP-516); else 12, which every broker since Kafka 2.7 serves.
"""

import logging
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from ottla.client.blocking import Connection
from ottla.client.cluster import Cluster, TopicGone, TopicMissing
from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.primitives import NULL_UUID
from ottla.spark.client_settings import ClientSettings
from ottla.spark.columns import Aborted
from ottla.spark.errors import NotReadyError, SourceError, name_of
from ottla.spark.offsets import Partition
from ottla.spark.wire import DEFAULT_FETCH_BYTES, cluster_of, is_refused, no_answer

log = logging.getLogger(__name__)

FETCH_BY_NAME: Final = 12
FETCH_BY_ID: Final = 13
READ_COMMITTED: Final = 1
RETRY_S: Final = 0.1
WARN_EVERY_S: Final = 15.0

MOVED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Errors after which the leader is looked up again; a topic that is being created is unknown for a moment, too."""


class Fetched(NamedTuple):
    """An answer; `records` None: nothing for now, because this `is_end` of the log or it `is_outside` of it, or
    because a transaction is open there. `records` lie in memory that the next answer is read into."""

    records: memoryview | None
    aborted: tuple[Aborted, ...] = ()
    is_end: bool = False
    is_outside: bool = False


@lru_cache(maxsize=4)
def _cluster(client: ClientSettings, process_id: int) -> Cluster:
    """Shared within a process; a forked one must not use its parent's connections."""
    return cluster_of(client)


class PartitionFetch:
    """Reads one partition from an offset on. `request` and `wait` alternate, so that the broker works while what came
    before is being decoded. Use as a context manager: whatever ends the task, no stray answer stays behind."""

    def __init__(
        self,
        client: ClientSettings,
        partition: Partition,
        *,
        topic_id: UUID | None = None,
        timeout_s: float,
        missing_s: float,
    ) -> None:
        """`topic_id`: of the topic that is meant, None if unknown. `timeout_s`: how long the partition may be
        without a leader or its brokers unreachable. `missing_s`: how long brokers may say that there is no such
        topic before that is believed; not more than `timeout_s`."""
        given = dict(client)
        self._servers = given.get("bootstrap.servers", "")
        self._cluster = _cluster(client, os.getpid())
        self._partition = partition
        self._topic_id = topic_id or NULL_UUID
        self._timeout_s = timeout_s
        self._missing_s = missing_s
        self._isolation = READ_COMMITTED if given.get("isolation.level") == "read_committed" else 0
        self._max_bytes = _partition_bytes(given)
        self._max_wait_ms = int(given.get("fetch.wait.max.ms", "100"))
        self._min_bytes = int(given.get("fetch.min.bytes", "1"))
        self._leader: Connection | None = None
        self._is_asked = False
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._leader is not None and (self._is_asked or kind is not None):
            self._cluster.drop(self._leader)

    def request(self, offset: int) -> None:
        """Ask for records from this offset on; `wait` gives them."""
        self._offset = offset
        self._send()

    def wait(self) -> Fetched:
        """Wait for the requested records.

        Raises NotReadyError if the partition stays out of reach for too long, TopicGone if it was deleted, SourceError
        if its leader refuses.
        """
        began = warned_at = time.monotonic()
        missing_since: float | None = None
        while True:
            try:
                if not self._is_asked:
                    self._send(final=True)
                answer = self._receive()
            except ClientError as error:
                if is_refused(error):
                    raise no_answer(self._servers, str(self._partition), error) from error
                reason = str(error)
                self._forget_leader()
                is_missing = isinstance(error, TopicMissing)
                missing_since = (missing_since or time.monotonic()) if is_missing else None
            else:
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return Fetched(None, is_outside=True)
                if not answer.error_code:
                    if not answer.records:
                        return Fetched(None, is_end=self._offset >= answer.high_watermark)
                    aborted = tuple(Aborted(each.producer_id, each.first_offset) for each in answer.aborted or ())
                    return Fetched(answer.records, aborted)
                if answer.error_code not in MOVED:
                    raise SourceError(
                        f"reading {self._partition} at offset {self._offset}: {name_of(answer.error_code)}"
                    )
                reason = name_of(answer.error_code)
                self._leader = None
                self._cluster.forget_leader(self._partition)
            now = time.monotonic()
            if now > warned_at + WARN_EVERY_S:
                log.warning("waiting for the leader of %s at offset %d: %s", self._partition, self._offset, reason)
                warned_at = now
            if missing_since is not None and now > missing_since + self._missing_s:
                raise TopicGone("was deleted")
            if now > began + self._timeout_s:
                raise NotReadyError(
                    f"reading {self._partition} at offset {self._offset}: its leader could not be reached for "
                    f"{self._timeout_s:.0f} s ({reason})"
                )
            time.sleep(RETRY_S)

    def _send(self, *, final: bool = False) -> None:
        """With `final`, raises ClientError and TopicGone; otherwise `wait` tries again."""
        try:
            if self._leader is None:
                self._leader = self._cluster.leader(self._partition, self._topic_id)
            if self._leader is None:
                raise BrokerUnavailable("it has no leader")
            partition = FetchPartition(
                partition=self._partition.number, fetch_offset=self._offset, partition_max_bytes=self._max_bytes
            )
            by_id = self._topic_id != NULL_UUID and self._leader.version(ApiKey.FETCH, FETCH_BY_ID) == FETCH_BY_ID
            request = FetchRequest(
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
                isolation_level=self._isolation,
                topics=[FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[partition])],
            )
            self._is_asked = True
            self._leader.send(request, FETCH_BY_ID if by_id else FETCH_BY_NAME)
        except (ClientError, TopicGone):
            self._forget_leader()
            if final:
                raise

    def _receive(self) -> "_Answer":
        assert self._leader is not None
        response = self._leader.receive()
        self._is_asked = False
        if response.error_code:
            return _Answer(response.error_code)
        data = response.responses[0].partitions[0]
        records = None if data.records is None else memoryview(data.records)
        return _Answer(data.error_code, records, data.aborted_transactions, data.high_watermark)

    def _forget_leader(self) -> None:
        if self._leader is not None:
            self._cluster.drop(self._leader)
        self._cluster.forget_leader(self._partition)
        self._leader = None
        self._is_asked = False


class _Answer(NamedTuple):
    error_code: int
    records: memoryview | None = None
    aborted: Any = None
    high_watermark: int = -1


def _partition_bytes(given: Mapping[str, str]) -> int:
    wish = given.get("max.partition.fetch.bytes", given.get("fetch.message.max.bytes"))
    return DEFAULT_FETCH_BYTES if wish is None else int(wish)
