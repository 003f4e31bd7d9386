"""What a run asks of the brokers: are its inputs there, and where do they end? Outputs that are not there are made."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.pipeline import names
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.lag import Offsets

_ANSWER_WITHIN_S: Final = 10.0
_BROKER_DEFAULT: Final = -1
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's lack

log = logging.getLogger(__name__)


def prepare_topics(
    settings: Mapping[str, str], reads: Collection[str], writes: Collection[str]
) -> tuple[list[tuple[str, int]], list[str]]:
    """The partitions of all topics read, and the topics that had to be made for that: those that the job itself writes.

    What is only written its sink makes. `settings` are the client library's. New topics get the brokers' default of
    partitions and replicas. Raises PipelineError if no broker answers, if a topic that is only read is not there, or
    if one cannot be made.
    """
    servers = settings["bootstrap.servers"]
    try:
        admin = _admin(settings)
        there = admin.list_topics(timeout=_ANSWER_WITHIN_S).topics
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        raise PipelineError(f"no broker answers at {servers} ({cause.str()})") from None
    for topic in sorted(set(reads) - set(writes)):
        if topic not in there:
            hint = names.did_you_mean(topic, there, otherwise=f"; create it first: ottla topic create {topic}")
            raise PipelineError(f"the job reads topic {topic!r}, which does not exist on {servers}{hint}")
    made = [topic for topic in sorted(set(reads) & set(writes)) if topic not in there and _create(admin, topic)]
    if made:
        there = admin.list_topics(timeout=_ANSWER_WITHIN_S).topics
    partitions = [(topic, number) for topic in sorted(reads) if topic in there for number in there[topic].partitions]
    return partitions, made


def _admin(settings: Mapping[str, str]) -> AdminClient:
    logged: dict[str, Any] = {**settings, "logger": log}
    return AdminClient(logged)


def _create(admin: AdminClient, topic: str) -> bool:
    """Make a topic; whether it was not there. Raises PipelineError."""
    wanted: Any = NewTopic(topic, _BROKER_DEFAULT, _BROKER_DEFAULT)
    try:
        admin.create_topics([wanted])[topic].result(_ANSWER_WITHIN_S)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise PipelineError(f"topic {topic!r}, which the job writes, cannot be made: {cause.str()}") from None
    return True


class LatestOffsets:
    """The ends of topics, asked for without waiting: `ask`, and `poll` gives what has come since."""

    def __init__(self, settings: Mapping[str, str], partitions: Iterable[tuple[str, int]]) -> None:
        """`settings` are the client library's, `partitions` those to ask for; `ask` adds others."""
        self._admin = _admin(settings)
        self._partitions = set(partitions)
        self._asked: dict[TopicPartition, Any] = {}

    def ask(self, others: Iterable[tuple[str, int]]) -> None:
        """Send the question, unless the last one is still open."""
        self._partitions.update(others)
        if self._partitions and not self._asked:
            wanted = {TopicPartition(topic, number): _LATEST for topic, number in self._partitions}
            self._asked = self._admin.list_offsets(wanted, request_timeout=_ANSWER_WITHIN_S)

    def poll(self) -> Offsets:
        """The answers, if they are all there; partitions that could not be asked are left out."""
        if not self._asked or not all(answer.done() for answer in self._asked.values()):
            return {}
        found: Offsets = {}
        for asked, answer in self._asked.items():
            try:
                found[asked.topic, asked.partition] = answer.result().offset
            except KafkaException:
                continue
        self._asked = {}
        return found
