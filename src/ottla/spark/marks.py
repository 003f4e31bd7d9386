"""What the sink notes down with the records of a task: which micro-batch they are, and how many.

A mark is an offset committed for a group of the task's own: the number of the next micro-batch. The offset's metadata
says how many records they are and in which run of the query which write wrote them. Source: KIP-98, KIP-447.
"""

import os
import re
import time
from typing import Final, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from ottla.spark.client_settings import ClientSettings
from ottla.spark.metadata import admin_client

ANSWER_TIMEOUT_S: Final = 300.0
"""How long brokers may be away. As long as a record waits to be written outside of a transaction."""
_ONE_ANSWER_TIMEOUT_S: Final = 5.0
_UNSETTLED_RETRY_S: Final = 0.02
_METADATA: Final = re.compile(r"run=(\S+) write=(\S+) records=(\d+)")


class Write(NamedTuple):
    """One execution of one sink: each restart of the query is another run, each write in `foreachBatch` another."""

    run_id: str
    write_id: str


class Mark(NamedTuple):
    """`write` and `records` None: the mark does not say."""

    batch_id: int
    write: Write | None = None
    records: int | None = None


def read_mark(client: ClientSettings, name: str, topic: str | None) -> Mark | None:
    """The last mark that was committed under this name, beside records of `topic`; None: of whichever topic.

    Raises KafkaException.
    """
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            found = _committed(client, name)
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT) or time.monotonic() > deadline:
                raise
            if code == KafkaError._TIMED_OUT:
                # librdkafka 2.16 asks a coordinator that was restarted in vain, for ever; a new client does not
                admin_client.cache_clear()
            time.sleep(_UNSETTLED_RETRY_S)  # a transaction is being ended
            continue
        marks = [each for each in found if each.offset > 0 and topic in (None, each.topic)]
        if not marks:
            return None
        last = max(marks, key=lambda each: each.offset)
        said = _METADATA.fullmatch(last.metadata or "")
        if said is None:
            return Mark(last.offset - 1)
        run_id, write_id, records = said.groups()
        return Mark(last.offset - 1, Write(run_id, write_id), int(records))


def as_offset(mark: Mark, topic: str) -> TopicPartition:
    """The mark as an offset of the topic's first partition; a broker refuses offsets of partitions that are not."""
    metadata = ""
    if mark.write is not None and mark.records is not None:
        metadata = f"run={mark.write.run_id} write={mark.write.write_id} records={mark.records}"
    return TopicPartition(topic, 0, mark.batch_id + 1, metadata)


def group_metadata(name: str) -> object:
    """What a transaction has to know of the group: its name, for nobody is a member of it."""
    consumer = Consumer({"group.id": name})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _committed(client: ClientSettings, name: str) -> list[TopicPartition]:
    admin = admin_client(client, os.getpid())
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name)], require_stable=True, request_timeout=_ONE_ANSWER_TIMEOUT_S
    )
    found: list[TopicPartition] = asked[name].result().topic_partitions
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return found
