"""A streaming query's records, written exactly once, on any broker with transactions.

Spark repeats a micro-batch that it does not know to be done: after a crash, or when a task fails. Each task writes its
records and a mark in one transaction, so that both are there or neither:

    transactional id   ottla-spark-<query id>-<task>      whoever starts the task again fences who ran it before
    mark               an offset committed for a group of the same name: the number of the next micro-batch

A repeated task finds the mark and writes nothing. Readers have to read committed records only.

What it asks of the query: that a repeated micro-batch gives each task the same rows. Spark repeats it with the same
offsets and the same number of tasks, so this holds for everything that does not depend on the time, on chance or on the
order in which a shuffle delivers. Marks outlive the query for `offsets.retention.minutes` (7 days by default).

Source: KIP-98; KIP-447 (groups in transactions); `streaming.sql.batchId` and `sql.streaming.queryId` are how Spark
tells its tasks which micro-batch they belong to.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyspark import TaskContext

from ottla.spark.errors import OptionError, SourceError
from ottla.spark.options import ClientSettings
from ottla.spark.produce import PRODUCER_DEFAULTS, produce_all

log = logging.getLogger(__name__)

NAME_PREFIX: Final = "ottla-spark"
KEPT_WRITERS: Final = 8
"""Per process. Each is two clients with threads of their own."""
ANSWER_TIMEOUT_S: Final = 60.0
COMMIT_TIMEOUT_S: Final = 300.0

DEFAULTS: Final = {
    **PRODUCER_DEFAULTS,
    "transaction.timeout.ms": 900_000,  # the longest that a broker allows unless told otherwise; a task may be long
}
_PRODUCER_ONLY: Final = (
    "acks", "batch.", "compression.", "delivery.", "enable.idempotence", "linger.ms", "message.send.", "partitioner",
    "queue.buffering.", "retries", "sticky.", "topic.metadata.propagation", "transaction.",
)  # fmt: skip

_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class StreamTask(NamedTuple):
    """One task of one micro-batch."""

    query_id: str
    batch_id: int
    number: int

    @property
    def name(self) -> str:
        """What the task has in common with the one of the same number in every other micro-batch."""
        return f"{NAME_PREFIX}-{self.query_id}-{self.number}"


def current_task() -> StreamTask:
    """The task that is running. Raises SourceError if Spark does not say which one it is."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch_id = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or query_id is None or batch_id is None:
        raise SourceError(
            "this Spark does not tell its tasks which micro-batch they write, so it cannot be written exactly once: "
            "set the option deliveryGuarantee to at-least-once"
        )
    return StreamTask(query_id, int(batch_id), context.partitionId())


def write_once(
    client: ClientSettings, topic: str | None, task: StreamTask, batches: Iterator[pa.RecordBatch]
) -> int | None:
    """Write the task's rows in one transaction; how many, or None if an earlier attempt has written them.

    Raises SourceError; then nothing has been written that readers of committed records will see.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    place = TopicPartition(topic if topic is not None else _first_topic(first), 0)
    rows = chain([first], batches)
    writer = _begin(client, task, place)
    if writer is None:
        for _ in rows:  # Spark sends them whether they are wanted or not
            pass
        log.info("%s: micro-batch %d has been written by an earlier attempt", task.name, task.batch_id)
        return None
    try:
        count = produce_all(writer.producer, rows, topic)
        writer.commit()
    except BaseException as error:
        writer.give_up()
        if isinstance(error, KafkaException):
            raise _explained(error, task, "could not be committed") from error
        raise
    return count


def _begin(client: ClientSettings, task: StreamTask, place: TopicPartition) -> "_TaskWriter | None":
    """A writer whose transaction holds the mark already, or None if it was set before.

    The mark goes first: it needs the coordinator, which refuses a writer that another attempt has fenced, as long as no
    row is lost by beginning again.
    """
    try:
        writer, is_new = _writer(client, task, os.getpid())
        try:
            return writer.begin(task, place)
        except KafkaException as error:
            writer.give_up()
            if is_new or error.args[0].code() not in _FENCED:
                raise
        writer, _ = _writer(client, task, os.getpid())
        try:
            return writer.begin(task, place)
        except KafkaException:
            writer.give_up()
            raise
    except KafkaException as error:
        raise _explained(error, task, "could not begin") from error


class _TaskWriter:
    """A transactional producer, and a consumer that never consumes: it knows the group of the marks."""

    def __init__(self, client: ClientSettings, name: str) -> None:
        """Fences whoever wrote under this name before, and ends what it left open. Raises KafkaException."""
        self._name = name
        given = dict(client)
        common = {key: value for key, value in given.items() if not key.startswith(_PRODUCER_ONLY)}
        consumer: dict[str, Any] = {
            **common, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed", "logger": log,
        }  # fmt: skip
        producer: dict[str, Any] = {**DEFAULTS, **given, "transactional.id": name, "logger": log}
        self._consumer = Consumer(consumer)
        self.producer = Producer(producer)
        self.producer.init_transactions(ANSWER_TIMEOUT_S)

    def begin(self, task: StreamTask, place: TopicPartition) -> "_TaskWriter | None":
        """Raises KafkaException."""
        (marked,) = self._consumer.committed([place], ANSWER_TIMEOUT_S)
        if marked.error is not None:
            raise KafkaException(marked.error)
        if marked.offset > task.batch_id:
            return None
        mark = TopicPartition(place.topic, place.partition, task.batch_id + 1)
        self.producer.begin_transaction()
        self.producer.send_offsets_to_transaction([mark], self._consumer.consumer_group_metadata(), ANSWER_TIMEOUT_S)
        return self

    def commit(self) -> None:
        """Raises KafkaException."""
        while True:
            try:
                self.producer.commit_transaction(COMMIT_TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def give_up(self) -> None:
        """Leave nothing behind; the next task of this name starts anew."""
        _writers.pop(self._name, None)
        with suppress(KafkaException):
            self.producer.purge()
            self.producer.abort_transaction(ANSWER_TIMEOUT_S)
        self.close()

    def close(self) -> None:
        self._consumer.close()


_writers: "OrderedDict[str, _TaskWriter]" = OrderedDict()
_writers_process = 0


def _writer(client: ClientSettings, task: StreamTask, process_id: int) -> tuple[_TaskWriter, bool]:
    """The writer of the task in this process, and whether it was made just now."""
    global _writers_process
    if _writers_process != process_id:  # a forked process must not use its parent's clients
        _writers.clear()
        _writers_process = process_id
    known = _writers.pop(task.name, None)
    if known is None:
        try:
            made = _TaskWriter(client, task.name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._INVALID_ARG:
                raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
            raise
        _writers[task.name] = made
        while len(_writers) > KEPT_WRITERS:
            _writers.popitem(last=False)[1].close()
        return made, True
    _writers[task.name] = known
    return known, False


def _first_topic(batch: pa.RecordBatch) -> str:
    found = batch.column("topic")[0].as_py()
    if found is None:
        raise SourceError("a row has no topic: its column 'topic' is null and the option 'topic' is not set")
    topic: str = found
    return topic


def _explained(error: KafkaException, task: StreamTask, what: str) -> SourceError:
    cause: KafkaError = error.args[0]
    reason = cause.str()
    if cause.code() in _FENCED:
        reason = "a later attempt of the same task has taken over"
    elif cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        reason = (
            "the broker's transaction.max.timeout.ms is below the 15 minutes asked for: "
            "set the option kafka.transaction.timeout.ms"
        )
    return SourceError(f"the transaction of micro-batch {task.batch_id}, task {task.number} {what}: {reason}")
