"""What the brokers know of topics: their partitions, and where each begins and ends."""

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.spark.errors import OptionError, SourceError, UnknownTopicError
from ottla.spark.offsets import EARLIEST, LATEST, FlatOffsets, Offsets, Partition
from ottla.spark.options import ClientSettings

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
        self._admin = _admin(client, os.getpid())
        committed = dict(client).get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
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

    def resolve(self, topics: Iterable[str], wanted: Offsets | int, option: str) -> FlatOffsets:
        """Turn `earliest`, `latest` or given offsets into one offset for each partition of the topics.

        Raises OptionError if given offsets leave out a partition or name one that does not exist.
        """
        partitions = self.partitions(topics)
        if isinstance(wanted, int):
            return self._list(dict.fromkeys(partitions, wanted))
        given = {
            Partition(topic, number): offset for topic, numbers in wanted.items() for number, offset in numbers.items()
        }
        if given.keys() != set(partitions):
            absent = ", ".join(str(each) for each in sorted(set(partitions) - given.keys()))
            excess = ", ".join(str(each) for each in sorted(given.keys() - set(partitions)))
            problem = f"leaves out {absent}" if absent else f"names {excess}, which does not exist"
            raise OptionError(f"'{option}' {problem}: give an offset for every partition (-2 earliest, -1 latest)")
        special = self._list({partition: offset for partition, offset in given.items() if offset < 0})
        return given | special

    def _list(self, specs: FlatOffsets) -> FlatOffsets:
        if not specs:
            return {}
        request = {
            TopicPartition(each.topic, each.number): _EARLIEST_SPEC if spec == EARLIEST else _LATEST_SPEC
            for each, spec in specs.items()
        }
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


@lru_cache(maxsize=8)
def _admin(client: ClientSettings, process_id: int) -> AdminClient:
    """One connection per process and cluster; a forked process must not use its parent's."""
    settings: dict[str, Any] = {name: value for name, value in client if not name.startswith(_CONSUMER_ONLY)}
    try:
        return AdminClient(settings)
    except KafkaException as error:
        raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
