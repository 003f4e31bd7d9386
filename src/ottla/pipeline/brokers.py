"""What a run asks of the brokers: are its inputs there, and where do they end? Outputs that are not there are made."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicMetadata

from ottla.pipeline import names
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.lag import Offsets

_ANSWER_WITHIN_S: Final = 10.0
_BROKER_DEFAULT: Final = -1
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's lack

log = logging.getLogger(__name__)


class Brokers:
    """One connection for all questions of a run. Raises PipelineError where no broker answers."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are the client library's, `bootstrap.servers` among them."""
        self._servers = settings["bootstrap.servers"]
        configuration: dict[str, Any] = {**settings, "logger": log}
        try:
            self._admin = AdminClient(configuration)
        except KafkaException as error:
            raise PipelineError(f"the client refuses its settings: {error.args[0].str()}") from None
        self._watched: set[tuple[str, int]] = set()
        self._asked: dict[TopicPartition, Any] = {}
        self.trouble: str | None = None
        """Why the last `poll` had no answer for any partition; None when it had."""

    def check_inputs(self, topics: Collection[str]) -> None:
        """Raises PipelineError, with the nearest name, for a topic that is not there."""
        there = self._topics()
        for topic in sorted(topics):
            if topic not in there:
                hint = names.did_you_mean(topic, there, otherwise=f"; create it first: ottla topic create {topic}")
                raise PipelineError(f"the job reads topic {topic!r}, which does not exist on {self._servers}{hint}")

    def make(self, topics: Collection[str]) -> list[str]:
        """Make those topics that are not there, with the brokers' default of partitions and replicas; gives those.

        Raises PipelineError for one that cannot be made.
        """
        there = self._topics() if topics else {}
        return [topic for topic in sorted(topics) if topic not in there and self._create(topic)]

    def watch(self, topics: Collection[str]) -> None:
        """`ask` from now on for the ends of these topics."""
        there = self._topics()
        self._watched.update(
            (topic, number) for topic in topics if topic in there for number in there[topic].partitions
        )

    def ask(self, others: Iterable[tuple[str, int]]) -> None:
        """Ask for the ends of all partitions that are watched, and of others from now on. `poll` has the answer."""
        self._watched.update(others)
        if self._watched and not self._asked:
            wanted = {TopicPartition(topic, number): _LATEST for topic, number in self._watched}
            self._asked = self._admin.list_offsets(wanted, request_timeout=_ANSWER_WITHIN_S)

    def poll(self) -> Offsets:
        """The answers, once they are all there; partitions that could not be asked are left out."""
        if not self._asked or not all(answer.done() for answer in self._asked.values()):
            return {}
        found: Offsets = {}
        reason = ""
        for asked, answer in self._asked.items():
            try:
                found[asked.topic, asked.partition] = answer.result().offset
            except KafkaException as error:
                reason = error.args[0].str()
        self._asked = {}
        self.trouble = None if found else f"no broker answers at {self._servers} ({reason})"
        return found

    def _topics(self) -> dict[str, TopicMetadata]:
        try:
            return self._admin.list_topics(timeout=_ANSWER_WITHIN_S).topics
        except KafkaException as error:
            raise PipelineError(f"no broker answers at {self._servers} ({error.args[0].str()})") from None

    def _create(self, topic: str) -> bool:
        """Whether it was not there."""
        wanted: Any = NewTopic(topic, _BROKER_DEFAULT, _BROKER_DEFAULT)
        try:
            self._admin.create_topics([wanted])[topic].result(_ANSWER_WITHIN_S)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise PipelineError(f"topic {topic!r}, which the job writes, cannot be made: {cause.str()}") from None
        return True
