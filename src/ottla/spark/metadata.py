"""What the brokers know of topics: their partitions, and where each begins and ends."""

import os
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.spark.errors import OptionError, SourceError, UnknownTopicError
from ottla.spark.offsets import EARLIEST, LATEST, FlatOffsets, Partition
from ottla.spark.options import ClientSettings
from ottla.spark.selection import Assigned, AtTime, Pattern, Position, Selection, Topics

_REQUEST_TIMEOUT_S: Final = 60.0
_EARLIEST_SPEC: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client's lack
_LATEST_SPEC: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's lack
_CONSUMER_ONLY: Final = ("isolation.level", "group.id", "fetch.", "queued.", "max.partition.fetch.bytes", "check.crcs")


class TopicMetadata:
    """Looks up partitions and offsets; every method asks the brokers anew.

    Raises SourceError when no broker answers within a minute, UnknownTopicError for a topic that is not there.
    """

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self._admin = admin_client(client, os.getpid())
        committed = dict(client).get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def partitions(self, selection: Selection) -> list[Partition]:
        """Those that the selection means now. Raises UnknownTopicError for one that is named and not there."""
        match selection:
            case Topics(names):
                return self._partitions_of(names)
            case Pattern():
                matching = [topic for topic in self._topics() if selection.matches(topic)]
                return self._partitions_of(matching) if matching else []
            case Assigned(wanted):
                there = set(self._partitions_of(dict.fromkeys(each.topic for each in wanted)))
                missing = [each for each in wanted if each not in there]
                if missing:
                    raise UnknownTopicError(f"'assign' names {', '.join(map(str, missing))}, which does not exist")
                return list(wanted)

    def _topics(self) -> list[str]:
        try:
            return sorted(self._admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics)
        except KafkaException as error:
            raise self._explain(error, "the list of topics") from error

    def _partitions_of(self, topics: Iterable[str]) -> list[Partition]:
        found: list[Partition] = []
        answers = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_REQUEST_TIMEOUT_S)
        for topic, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                raise self._explain(error, f"topic '{topic}'") from error
            found.extend(Partition(topic, each.id) for each in description.partitions)
        return sorted(found)

    def earliest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> FlatOffsets:
        """Offset after the last readable record: the high watermark, or the last stable offset if read_committed."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def resolve(self, selection: Selection, wanted: Position, option: str) -> FlatOffsets:
        """Turn a position into one offset for each partition of the selection.

        Raises OptionError if given offsets or times leave out a partition or name one that does not exist, or if no
        record is as young as a time that is to start from.
        """
        partitions = self.partitions(selection)
        if isinstance(wanted, int):
            return self._list(dict.fromkeys(partitions, wanted))
        if isinstance(wanted, AtTime):
            return self._at_time(partitions, wanted, option)
        given = {
            Partition(topic, number): offset for topic, numbers in wanted.items() for number, offset in numbers.items()
        }
        _check_same(given.keys(), partitions, option, "an offset for every partition (-2 earliest, -1 latest)")
        special = self._list({partition: offset for partition, offset in given.items() if offset < 0})
        return given | special

    def _at_time(self, partitions: list[Partition], wanted: AtTime, option: str) -> FlatOffsets:
        times = {partition: time for partition in partitions if (time := wanted.of(partition)) is not None}
        if wanted.by_partition is not None:
            named = [Partition(topic, number) for topic, numbers in wanted.by_partition.items() for number in numbers]
            _check_same(named, partitions, option, "a time for every partition")
        found = self._ask({partition: OffsetSpec.for_timestamp(time) for partition, time in times.items()})
        without = [partition for partition, offset in found.items() if offset < 0]
        if without and not wanted.latest_if_none:
            raise OptionError(
                f"'{option}': no record of {', '.join(map(str, without))} is as young as that. To start behind the "
                "last record there, set the option startingOffsetsByTimestampStrategy to latest"
            )
        return found | self.latest(without)

    def _list(self, specs: FlatOffsets) -> FlatOffsets:
        return self._ask({each: _EARLIEST_SPEC if spec == EARLIEST else _LATEST_SPEC for each, spec in specs.items()})

    def _ask(self, specs: Mapping[Partition, OffsetSpec]) -> FlatOffsets:
        if not specs:
            return {}
        request = {TopicPartition(each.topic, each.number): spec for each, spec in specs.items()}
        answers = self._admin.list_offsets(request, isolation_level=self._isolation, request_timeout=_REQUEST_TIMEOUT_S)
        found = {}
        for asked, answer in answers.items():
            partition = Partition(asked.topic, asked.partition)
            try:
                found[partition] = answer.result().offset
            except KafkaException as error:
                raise self._explain(error, f"partition {partition}") from error
        return found

    def _explain(self, error: KafkaException, subject: str) -> SourceError:
        cause: KafkaError = error.args[0]
        servers = dict(self._client)["bootstrap.servers"]
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return UnknownTopicError(f"{subject} does not exist on the brokers at {servers}; create it first")
        if cause.code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            return SourceError(f"no broker at {servers} answered within {_REQUEST_TIMEOUT_S:.0f} s ({cause.str()})")
        return SourceError(f"{subject} at {servers}: {cause.str()}")


def _check_same(given: Collection[Partition], partitions: Collection[Partition], option: str, wanted: str) -> None:
    absent, excess = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    if absent or excess:
        problem = (
            f"leaves out {', '.join(map(str, absent))}"
            if absent
            else f"names {', '.join(map(str, excess))}, which does not exist"
        )
        raise OptionError(f"'{option}' {problem}: give {wanted}")


@lru_cache(maxsize=8)
def admin_client(client: ClientSettings, process_id: int) -> AdminClient:
    """One for each process and cluster; a forked process must not use its parent's. Raises OptionError."""
    settings: dict[str, Any] = {name: value for name, value in client if not name.startswith(_CONSUMER_ONLY)}
    try:
        return AdminClient(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
