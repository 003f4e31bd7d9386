"""The marks that the sink writes with the records of a task: their micro-batch, and their number.

A mark is an offset committed for a group of the task's own: the number of the next micro-batch. The offset's metadata
holds the number of records, the run of the query, and the write in it. Source: KIP-98, KIP-447.
"""

import logging
import re
import time
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla.spark.client_settings import ClientSettings, library

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 300.0
"""How long brokers may be away. As long as a record waits to be written outside of a transaction."""
_RETRY_S: Final = 0.5
_PRODUCER_ONLY: Final = (
    "acks", "batch.", "compression.", "delivery.", "enable.idempotence", "linger.ms", "message.send.", "partitioner",
    "queue.buffering.", "retries", "sticky.", "topic.metadata.propagation", "transaction.",
)  # fmt: skip
_METADATA: Final = re.compile(r"run=(\S+) write=(\S+) records=(\d+)")


class Write(NamedTuple):
    """One execution of one sink: each restart of the query is another run, each write in `foreachBatch` another."""

    run_id: str
    write_id: str


class Mark(NamedTuple):
    """`write` and `records` None: the mark does not say. `place`: the topic beside whose records it was found."""

    batch_id: int
    write: Write | None = None
    records: int | None = None
    place: str | None = None


class Marks:
    """The marks under one name. A consumer that never consumes: the client library's other way to ask for offsets, its
    admin client, asks in vain once the group's coordinator was restarted (librdkafka 2.16)."""

    def __init__(self, client: ClientSettings, name: str) -> None:
        """Raises KafkaException if the settings make no sense."""
        common = library((key, value) for key, value in client if not key.startswith(_PRODUCER_ONLY))
        self._consumer = Consumer(
            {
                **common, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed",
                "logger": log,
            }
        )  # fmt: skip

    @property
    def group(self) -> object:
        """The group for the transaction: only its name, since it has no members."""
        return self._consumer.consumer_group_metadata()

    def last(self, topic: str | None, place: str | None = None) -> Mark | None:
        """The last that was committed beside records of `topic`, or with None of any topic.

        `place`: a topic that has to be among those. Raises KafkaException, also if `place` stays unknown.
        """
        topics = [topic] if topic is not None else self._topics(place)
        found = self._consumer.committed([TopicPartition(each, 0) for each in topics], ANSWER_TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        last = max(found, key=lambda each: each.offset, default=None)
        if last is None or last.offset <= 0:
            return None
        said = _METADATA.fullmatch(last.metadata or "")
        if said is None:
            return Mark(last.offset - 1, place=last.topic)
        run_id, write_id, records = said.groups()
        return Mark(last.offset - 1, Write(run_id, write_id), int(records), last.topic)

    def _topics(self, place: str | None) -> list[str]:
        """All topics. A broker that has just started may not know them yet; then there would seem to be no mark."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            found = list(self._consumer.list_topics(timeout=max(_RETRY_S, deadline - time.monotonic())).topics)
            if place is None or place in found:
                return found
            if time.monotonic() >= deadline:
                raise KafkaException(
                    KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic '{place}'; create it first")
                )
            log.warning("waiting for a broker that knows topic '%s'", place)
            time.sleep(_RETRY_S)

    def close(self) -> None:
        self._consumer.close()


def as_offset(mark: Mark, topic: str) -> TopicPartition:
    """The mark as an offset of the topic's first partition; a broker refuses offsets of partitions that are not."""
    metadata = ""
    if mark.write is not None and mark.records is not None:
        metadata = f"run={mark.write.run_id} write={mark.write.write_id} records={mark.records}"
    return TopicPartition(topic, 0, mark.batch_id + 1, metadata)
