"""What the brokers know of topics: their partitions, and where each begins and ends."""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import NotReadyError, OptionError, SourceError, UnknownTopicError, UnreachableError
from ottla.spark.offsets import EARLIEST, LATEST, FlatOffsets, Partition, TopicIds
from ottla.spark.selection import Assigned, AtTime, Pattern, Position, Selection, Topics

log = logging.getLogger(__name__)

T = TypeVar("T")

_REQUEST_TIMEOUT_S: Final = 60.0
_REST_S: Final = 1.0
"""Between two questions that brokers answer at once."""
_MOST_NAMED: Final = 10
_NOT_READY: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
)  # fmt: skip
_EARLIEST_SPEC: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client's lack
_LATEST_SPEC: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's lack
_DEFAULTS: Final = {"reconnect.backoff.max.ms": "1000"}  # a query goes on soon after its brokers are back
_CONSUMER_ONLY: Final = ("isolation.level", "group.id", "fetch.", "queued.", "max.partition.fetch.bytes", "check.crcs")


class Layout(NamedTuple):
    """The partitions that are meant, and the ids of their topics."""

    partitions: list[Partition]
    ids: TopicIds


class TopicMetadata:
    """Looks up partitions and offsets; every method asks the brokers anew.

    Raises UnreachableError when no broker answers, NotReadyError when a partition stays without a leader, SourceError
    when a broker refuses, UnknownTopicError for a topic that is not there.
    """

    def __init__(
        self, client: ClientSettings, *, attempts: int = 1, pause_s: float = 0.0, missing_s: float = 0.0
    ) -> None:
        """`attempts`: for how many minutes a request is made again while no broker answers, or a partition is without a
        leader; with 1, the first answer counts. `missing_s`: how long brokers may say that a topic does not exist
        before that is believed."""
        self._client = client
        self._attempts = attempts
        self._pause_s = pause_s
        self._missing_s = missing_s
        self._admin = admin_client(client, os.getpid())
        committed = dict(client).get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def layout(self, selection: Selection, known: Collection[str] = ()) -> Layout:
        """What the selection means now; `known`: topics that were there, as far as they match.

        Raises UnknownTopicError for a topic that is named and not there.
        """
        match selection:
            case Topics(names):
                return self._describe(names)
            case Pattern():
                return self._describe(self._matching(selection, known))
            case Assigned(wanted):
                found = self._describe(dict.fromkeys(each.topic for each in wanted))
                missing = set(wanted) - set(found.partitions)
                if missing:
                    raise UnknownTopicError(f"'assign' names {_listed(missing)}, which does not exist")
                return Layout(list(wanted), found.ids)

    def ids(self, topics: Iterable[str]) -> TopicIds:
        """The ids of these topics; nothing where brokers have none (before Kafka 2.8)."""
        return self._describe(topics).ids

    def _matching(self, pattern: Pattern, known: Collection[str]) -> list[str]:
        expected = {topic for topic in known if pattern.matches(topic)}

        def ask() -> list[str]:
            found = self._topics()
            gone = sorted(expected.difference(found))
            if gone:
                raise UnknownTopicError(f"topic '{gone[0]}' is not there any more")
            return found

        try:
            found = self._patiently(ask)
        except UnknownTopicError:
            found = self._patiently(self._topics)
        return [topic for topic in found if pattern.matches(topic)]

    def _topics(self) -> list[str]:
        with self._about("the list of topics"):
            return sorted(self._admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics)

    def _describe(self, topics: Iterable[str]) -> Layout:
        names = list(topics)
        found = Layout([], {})
        for topic, description in self._patiently(lambda: self._descriptions(names)).items():
            found.partitions.extend(Partition(topic, each.id) for each in description.partitions)
            if bits := _bits(description.topic_id):
                found.ids[topic] = UUID(int=bits)
        found.partitions.sort()
        return found

    def _descriptions(self, topics: list[str]) -> dict[str, TopicDescription]:
        found = {}
        if topics:
            answers = self._admin.describe_topics(TopicCollection(topics), request_timeout=_REQUEST_TIMEOUT_S)
            for topic, answer in answers.items():
                with self._about(f"topic '{topic}'"):
                    found[topic] = answer.result()
        return found

    def earliest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        """Offset after the last readable record: the high watermark, or the last stable offset if read_committed."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def at_time(self, partitions: Iterable[Partition], time_ms: int) -> FlatOffsets:
        """Offset of the first record that is not older than that; -1 where all are older."""
        return self._ask(dict.fromkeys(partitions, OffsetSpec.for_timestamp(time_ms)))

    def resolve(self, partitions: list[Partition], wanted: Position, option: str) -> FlatOffsets:
        """Turn a position into one offset for each of the partitions.

        Raises OptionError if given offsets or times leave out a partition or name one that does not exist, or if no
        record is as young as a time that is to start from.
        """
        if isinstance(wanted, int):
            return self._list(dict.fromkeys(partitions, wanted))
        if isinstance(wanted, AtTime):
            return self._at_times(partitions, wanted, option)
        given = {
            Partition(topic, number): offset for topic, numbers in wanted.items() for number, offset in numbers.items()
        }
        _check_same(given.keys(), partitions, option, "an offset for every partition (-2 earliest, -1 latest)")
        special = self._list({partition: offset for partition, offset in given.items() if offset < 0})
        return given | special

    def _at_times(self, partitions: list[Partition], wanted: AtTime, option: str) -> FlatOffsets:
        times = {partition: time for partition in partitions if (time := wanted.of(partition)) is not None}
        if wanted.by_partition is not None:
            named = [Partition(topic, number) for topic, numbers in wanted.by_partition.items() for number in numbers]
            _check_same(named, partitions, option, "a time for every partition")
        found = self._ask({partition: OffsetSpec.for_timestamp(time) for partition, time in times.items()})
        without = [partition for partition, offset in found.items() if offset < 0]
        if without and not wanted.latest_if_none:
            raise OptionError(
                f"'{option}': no record of {_listed(without)} is as young as that. To start behind the "
                "last record there, set the option startingOffsetsByTimestampStrategy to latest"
            )
        return found | self.latest(without)

    def _list(self, specs: FlatOffsets) -> FlatOffsets:
        return self._ask({each: _EARLIEST_SPEC if spec == EARLIEST else _LATEST_SPEC for each, spec in specs.items()})

    def _ask(self, specs: Mapping[Partition, OffsetSpec]) -> FlatOffsets:
        if not specs:
            return {}
        request = {TopicPartition(each.topic, each.number): spec for each, spec in specs.items()}

        def ask() -> FlatOffsets:
            found = {}
            answers = self._admin.list_offsets(
                request, isolation_level=self._isolation, request_timeout=_REQUEST_TIMEOUT_S
            )
            for asked, answer in answers.items():
                partition = Partition(asked.topic, asked.partition)
                with self._about(f"partition {partition}"):
                    found[partition] = answer.result().offset
            return found

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[], T]) -> T:
        began = time.monotonic()
        patience_s = self._attempts * _REQUEST_TIMEOUT_S
        first_at: dict[type[SourceError], float] = {UnreachableError: began}
        allowed_s = {NotReadyError: patience_s, UnknownTopicError: self._missing_s}
        # A connection that breaks is told at once, one that is not made after a minute: attempts measure no time.
        allowed_s[UnreachableError] = 0.0 if self._attempts == 1 else patience_s
        while True:
            try:
                return ask()
            except (NotReadyError, UnknownTopicError, UnreachableError) as error:
                now = time.monotonic()
                left_s = first_at.setdefault(type(error), now) + allowed_s[type(error)] - now
                if left_s <= 0:
                    raise
                log.warning("%s; asking again for %.0f s at most", error, left_s)
                time.sleep(max(_REST_S, self._pause_s))

    @contextmanager
    def _about(self, subject: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._explain(error, subject) from error

    def _explain(self, error: KafkaException, subject: str) -> SourceError:
        cause: KafkaError = error.args[0]
        servers = dict(self._client)["bootstrap.servers"]
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return UnknownTopicError(f"{subject} does not exist on the brokers at {servers}; create it first")
        if cause.code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            return UnreachableError(f"no broker at {servers} answers, asked about {subject} ({cause.str()})")
        kind = NotReadyError if cause.code() in _NOT_READY else SourceError
        return kind(f"{subject} at {servers}: {cause.str()} ({cause.name()})")


def _listed(partitions: Iterable[Partition]) -> str:
    """All of a few, the first of many."""
    names = [str(each) for each in sorted(partitions)]
    return (
        ", ".join(names) if len(names) <= _MOST_NAMED else f"{', '.join(names[:_MOST_NAMED])} and {len(names)} in all"
    )


def _bits(topic_id: Any) -> int:
    """Of a `confluent_kafka.Uuid`, whose declaration leaves out its methods; 0 where brokers have no ids."""
    if topic_id is None:
        return 0
    high: int = topic_id.get_most_significant_bits()
    low: int = topic_id.get_least_significant_bits()
    return (high % (1 << 64)) << 64 | low % (1 << 64)


def _check_same(given: Collection[Partition], partitions: Collection[Partition], option: str, wanted: str) -> None:
    absent, excess = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    if absent or excess:
        problem = f"leaves out {_listed(absent)}" if absent else f"names {_listed(excess)}, which does not exist"
        raise OptionError(f"'{option}' {problem}: give {wanted}")


@lru_cache(maxsize=8)
def admin_client(client: ClientSettings, process_id: int) -> AdminClient:
    """One for each process and cluster; a forked process must not use its parent's. Raises OptionError."""
    given = {name: value for name, value in client if not name.startswith(_CONSUMER_ONLY)}
    settings: dict[str, Any] = {**_DEFAULTS, **given}
    try:
        return AdminClient(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
