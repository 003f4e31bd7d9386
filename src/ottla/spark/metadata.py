"""What the brokers know of topics: their partitions, and where each begins and ends."""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from ottla.spark.client_metadata import ClientMetadata
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import NotReadyError, OptionError, SourceError, UnknownTopicError, UnreachableError
from ottla.spark.metadata_queries import MetadataQueries
from ottla.spark.offsets import EARLIEST, LATEST, FlatOffsets, Partition, TopicIds
from ottla.spark.selection import Assigned, AtTime, Pattern, Position, Selection, Topics
from ottla.spark.wire import ANSWER_TIMEOUT_S, is_for_wire
from ottla.spark.wire_metadata import WireMetadata

log = logging.getLogger(__name__)

T = TypeVar("T")

_MINUTE_S: Final = 60.0
_FIRST_ANSWER_S: Final = 10.0
"""How long brokers may be unreachable at the first request: a broker restarts in that time."""
_REST_S: Final = 1.0
"""Between two queries that brokers answer at once."""
_WARN_EVERY_S: Final = 15.0
_MOST_NAMED: Final = 10


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
        """`attempts`: for how many minutes a request is made again while no broker answers (with 1, for some seconds),
        or a partition is without a leader. `missing_s`: how long brokers may say that a topic does not exist before
        that is believed."""
        timeout_s = attempts * _MINUTE_S
        self._allowed_s: dict[type[SourceError], float] = {
            NotReadyError: timeout_s,
            UnknownTopicError: missing_s,
            UnreachableError: _FIRST_ANSWER_S if attempts == 1 else timeout_s,
        }
        self._rest_s = max(_REST_S, pause_s)
        self._queries = _kept_queries(client, os.getpid())

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
            found = self._queries.names(expected)
            gone = sorted(expected.difference(found))
            if gone:
                raise UnknownTopicError(f"topic '{gone[0]}' is not there any more")
            return found

        try:
            found = self._with_retries(ask)
        except UnknownTopicError:
            found = self._with_retries(self._queries.names)
        return [topic for topic in found if pattern.matches(topic)]

    def _describe(self, topics: Iterable[str]) -> Layout:
        names = list(topics)
        found = Layout([], {})
        for topic, described in self._with_retries(lambda: self._queries.describe(names)).items():
            found.partitions.extend(Partition(topic, number) for number in described.partitions)
            if described.topic_id is not None:
                found.ids[topic] = described.topic_id
        found.partitions.sort()
        return found

    def earliest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        return self._ask(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        """Offset after the last readable record: the high watermark, or the last stable offset if read_committed."""
        return self._ask(dict.fromkeys(partitions, LATEST))

    def at_time(self, partitions: Iterable[Partition], time_ms: int) -> FlatOffsets:
        """Offset of the first record that is not older than that; -1 where all are older."""
        return self._ask(dict.fromkeys(partitions, max(0, time_ms)))  # below are the special places

    def resolve(self, partitions: list[Partition], wanted: Position, option: str) -> FlatOffsets:
        """Turn a position into one offset for each of the partitions.

        Raises OptionError if given offsets or times leave out a partition or name one that does not exist, or if no
        record is as young as a time that is to start from.
        """
        if isinstance(wanted, int):
            return self._ask(dict.fromkeys(partitions, wanted))
        if isinstance(wanted, AtTime):
            return self._at_times(partitions, wanted, option)
        given = {
            Partition(topic, number): offset for topic, numbers in wanted.items() for number, offset in numbers.items()
        }
        _check_same(given.keys(), partitions, option, "an offset for every partition (-2 earliest, -1 latest)")
        special = self._ask({partition: offset for partition, offset in given.items() if offset < 0})
        return given | special

    def _at_times(self, partitions: list[Partition], wanted: AtTime, option: str) -> FlatOffsets:
        times = {partition: time for partition in partitions if (time := wanted.of(partition)) is not None}
        if wanted.by_partition is not None:
            named = [Partition(topic, number) for topic, numbers in wanted.by_partition.items() for number in numbers]
            _check_same(named, partitions, option, "a time for every partition")
        found = self._ask(times)
        without = [partition for partition, offset in found.items() if offset < 0]
        if without and not wanted.latest_if_none:
            raise OptionError(
                f"'{option}': no record of {_listed(without)} is as young as that. To start behind the "
                "last record there, set the option startingOffsetsByTimestampStrategy to latest"
            )
        return found | self.latest(without)

    def _ask(self, places: FlatOffsets) -> FlatOffsets:
        def ask() -> FlatOffsets:
            found = {}
            for partition, offset in self._queries.offsets(places).items():
                if isinstance(offset, SourceError):
                    raise offset
                found[partition] = offset
            return found

        return self._with_retries(ask) if places else {}

    def _with_retries(self, ask: Callable[[], T]) -> T:
        began = time.monotonic()
        first_at: dict[type[SourceError], float] = {UnreachableError: began}
        warned_at = began - _WARN_EVERY_S
        while True:
            try:
                return ask()
            except (NotReadyError, UnknownTopicError, UnreachableError) as error:
                now = time.monotonic()
                if not isinstance(error, UnknownTopicError):
                    first_at.pop(UnknownTopicError, None)  # what counts is for how long it was denied all the time
                left_s = first_at.setdefault(type(error), now) + self._allowed_s[type(error)] - now
                if left_s <= 0:
                    raise
                if now >= warned_at + _WARN_EVERY_S:
                    log.warning("%s; asking again for %.0f s at most", error, left_s)
                    warned_at = now
                time.sleep(self._rest_s)


def _listed(partitions: Iterable[Partition]) -> str:
    """All of a few, the first of many."""
    names = [str(each) for each in sorted(partitions)]
    return (
        ", ".join(names) if len(names) <= _MOST_NAMED else f"{', '.join(names[:_MOST_NAMED])} and {len(names)} in all"
    )


def _check_same(given: Collection[Partition], partitions: Collection[Partition], option: str, wanted: str) -> None:
    absent, excess = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    if absent or excess:
        problem = f"leaves out {_listed(absent)}" if absent else f"names {_listed(excess)}, which does not exist"
        raise OptionError(f"'{option}' {problem}: give {wanted}")


def metadata_queries(client: ClientSettings, answer_within_s: float = ANSWER_TIMEOUT_S) -> MetadataQueries:
    """Metadata queries, over connections that are made when they are needed and kept. Raises OptionError."""
    return (WireMetadata if is_for_wire(client) else ClientMetadata)(client, answer_within_s)


@lru_cache(maxsize=8)
def _kept_queries(client: ClientSettings, process_id: int) -> MetadataQueries:
    """One for each process and cluster; a forked process must not use its parent's connections."""
    return metadata_queries(client)
