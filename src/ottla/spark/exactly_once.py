"""A streaming query's records, written exactly once, on any broker with transactions.

Spark repeats a micro-batch that it does not know to be done: after a crash, or when a task fails. Each task writes its
records and a mark in one transaction, so that both are there or neither:

    transactional id   ottla-spark-<query id>-<task>      a restarted task fences its predecessor
    mark               an offset committed for a group of the same name: the number of the next micro-batch, and as its
                       metadata the number of records

A repeated task finds the mark and writes nothing. Readers have to read committed records only.

A requirement on the query: a repeated micro-batch must give each task the same rows. Spark repeats it with the same
offsets, and `ottla`'s source and Spark's shuffles cut them into the same tasks whatever the settings are by then, so
this holds for everything that does not depend on the time, on chance or on the order in which a shuffle delivers. A
task whose number of rows differs from the mark's is refused, and so is a micro-batch older than the mark: the
checkpoint has been set back or copied. Marks outlive the query for `offsets.retention.minutes` (7 days by default).

Source: KIP-98; KIP-447 (groups in transactions); `streaming.sql.batchId` and `sql.streaming.queryId` carry the
micro-batch to Spark's tasks.
"""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark import TaskContext

from ottla.producers import abandon
from ottla.spark.client_settings import ClientSettings, library
from ottla.spark.errors import OptionError, SourceError
from ottla.spark.marks import ANSWER_TIMEOUT_S, Mark, Marks, Write, as_offset
from ottla.spark.produce import RecordProducer

log = logging.getLogger(__name__)

NAME_PREFIX: Final = "ottla-spark"
KEPT_WRITERS: Final = 8
"""Per process. Each is two clients with threads of their own."""
ABORT_TIMEOUT_S: Final = 10.0
"""Limit for aborting; an open transaction is ended by the next attempt, or by the broker."""
_RETRY_S: Final = 0.1

DEFAULTS: Final = {
    "transaction.timeout.ms": 900_000,  # the longest that brokers allow by default; a task may be long
}

_AWAY: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class StreamTask(NamedTuple):
    """One task of one micro-batch."""

    query_id: str
    batch_id: int
    number: int
    write: Write

    @property
    def name(self) -> str:
        """What the task has in common with the one of the same number in every other micro-batch."""
        return f"{NAME_PREFIX}-{self.query_id}-{self.number}"

    def __str__(self) -> str:
        return f"micro-batch {self.batch_id}, task {self.number}"


class Outcome(NamedTuple):
    """`repeated`: an earlier attempt had written these records."""

    records: int
    repeated: bool = False


def current_task(write_id: str) -> StreamTask | None:
    """The task that is running, for the write that Spark's driver gave this id; None outside of streaming queries."""
    context = TaskContext.get()
    if context is None:
        return None
    query_id, batch_id = (
        context.getLocalProperty("sql.streaming.queryId"),
        context.getLocalProperty("streaming.sql.batchId"),
    )
    if query_id is None or batch_id is None:
        return None
    run_id = context.getLocalProperty("spark.jobGroup.id") or "unknown"
    return StreamTask(query_id, int(batch_id), context.partitionId(), Write(run_id, write_id))


def write_once(
    client: ClientSettings, topic: str | None, task: StreamTask, batches: Iterator[pa.RecordBatch]
) -> Outcome:
    """Write the task's rows in one transaction, unless an earlier attempt has written them.

    Raises SourceError; then nothing has been written that readers of committed records will see, but where the broker
    was out of reach while the transaction ended: the next attempt finds out.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        _check_nothing(client, task, topic)
        return Outcome(0)
    place = topic if topic is not None else _first_topic(first)
    rows = chain([first], batches)
    writer, mark = _begin(client, task, topic, place)
    if mark is not None:
        return Outcome(_skip(rows, mark, task), repeated=True)
    try:
        count = writer.producer.write(rows, topic)
        writer.commit(as_offset(Mark(task.batch_id, task.write, count), place))
    except BaseException as error:
        writer.give_up()
        if isinstance(error, KafkaException):
            raise _explained(error, task, "could not be committed") from error
        raise
    return Outcome(count)


def _check_nothing(client: ClientSettings, task: StreamTask, topic: str | None) -> None:
    """Raises SourceError if an earlier attempt of a task without rows had some."""
    try:
        kept = _kept_writer(client, task)
        marks = kept.marks if kept is not None else Marks(client, task.name)
        try:
            mark = _judged(marks.last(topic), task, topic)
        finally:
            if kept is None:
                marks.close()
    except KafkaException as error:
        raise _explained(error, task, "could not be looked for") from error
    if mark is not None:
        _skip(iter(()), mark, task)


def _judged(mark: Mark | None, task: StreamTask, topic: str | None) -> Mark | None:
    """The mark if it is of this micro-batch. Raises SourceError if it is of a later one, or of another write."""
    if mark is None or mark.batch_id < task.batch_id:
        return None
    if mark.batch_id > task.batch_id:
        raise SourceError(
            f"{task}: this query has written up to micro-batch {mark.batch_id} already. Its checkpoint has been "
            "set back, or another query goes on with a copy of it: begin with a new checkpoint where it is to start"
        )
    if mark.write is not None and mark.write != task.write and mark.write.run_id == task.write.run_id:
        raise SourceError(
            f"{task}: foreachBatch has written to {topic or 'a topic'} already in this micro-batch. Only one "
            "write to a topic can be exactly-once: write the union of the rows"
        )
    return mark


def _skip(rows: Iterator[pa.RecordBatch], mark: Mark, task: StreamTask) -> int:
    """Take the rows of a repeated task, which Spark sends whether they are wanted or not; how many there are."""
    count: int = sum(batch.num_rows for batch in rows)
    if mark.records not in (None, count):
        raise SourceError(
            f"{task}: an earlier attempt wrote {mark.records} records, and now there are {count}. A repeated "
            "micro-batch has to give each task the same rows, so that none is lost or doubled: restart the query with "
            "the tasks it had (repartition, coalesce, the source's partitions) and the tables it had, or once with "
            "deliveryGuarantee at-least-once, which writes this micro-batch again"
        )
    log.info("%s has been written by an earlier attempt", task)
    return count


def _begin(
    client: ClientSettings, task: StreamTask, topic: str | None, place: str
) -> tuple["_TaskWriter", Mark | None]:
    """A writer, in a transaction unless there is the mark of an earlier attempt.

    One that was kept asks the coordinator first, by setting a mark: if another attempt has fenced it meanwhile, it is
    replaced as long as no row has been taken from Spark. One that is new has just asked.
    """
    try:
        kept = _kept_writer(client, task)
        if kept is not None:
            try:
                return kept, kept.begin(task, topic, place, as_offset(Mark(task.batch_id), place))
            except KafkaException as error:
                kept.give_up()
                if error.args[0].code() not in _FENCED:
                    raise
        made = _new_writer(client, task)
        try:
            return made, made.begin(task, topic, place, None)
        except KafkaException:
            made.give_up()
            raise
    except KafkaException as error:
        raise _explained(error, task, "could not begin") from error


class _TaskWriter:
    """A transactional producer, and the marks under its name."""

    def __init__(self, client: ClientSettings, name: str) -> None:
        """Fences the previous writer of this name, and ends its open transaction. Raises KafkaException."""
        self._name = name
        self._key = (client, name)
        self.marks = Marks(client, name)
        self._group = self.marks.group
        self.producer = RecordProducer({**DEFAULTS, **library(client), "transactional.id": name, "logger": log})
        self.producer.client.init_transactions(ANSWER_TIMEOUT_S)

    def begin(self, task: StreamTask, topic: str | None, place: str, first: Any) -> Mark | None:
        """Begin a transaction, with `first` as its first mark, unless there is the mark of an earlier attempt.

        Raises KafkaException, and SourceError if the mark does not fit.
        """
        mark = _judged(self.marks.last(topic, place), task, topic)
        if mark is not None:
            if mark.write != task.write and mark.records is not None:
                # of another run: only a mark of this run distinguishes the second write to the topic from the first
                self.producer.client.begin_transaction()
                self.commit(as_offset(mark._replace(write=task.write), mark.place or place))
            return mark
        self.producer.client.begin_transaction()
        if first is not None:
            self._send(first)
        return None

    def commit(self, mark: Any) -> None:
        """Raises KafkaException, also if brokers stay away: the next attempt finds the mark, or fences this one."""
        self._send(mark)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                self.producer.client.commit_transaction(max(_RETRY_S, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_S)
                log.warning("%s: still waiting for the end of the transaction (%s)", self._name, error.args[0].str())

    def give_up(self) -> None:
        """Leave nothing behind; the next task of this name starts anew."""
        _writers.pop(self._key, None)
        with suppress(KafkaException):
            self.producer.client.purge()
            self.producer.client.abort_transaction(ABORT_TIMEOUT_S)
        self.close()

    def close(self) -> None:
        self.marks.close()
        abandon(self.producer.client)

    def _send(self, mark: Any) -> None:
        self.producer.client.send_offsets_to_transaction([mark], self._group, ANSWER_TIMEOUT_S)


_writers: "OrderedDict[tuple[ClientSettings, str], _TaskWriter]" = OrderedDict()
"""By settings as well: two sinks of one query, or two runs of it, may mean different clusters."""
_writers_process = 0
_inherited: list[_TaskWriter] = []
"""Writers of a forked process's parent, referenced for ever: to end them librdkafka would wait for lost threads."""


def _kept_writer(client: ClientSettings, task: StreamTask) -> _TaskWriter | None:
    """The writer that this process has kept for the task, if any."""
    global _writers_process
    if _writers_process != os.getpid():  # a forked process must not use its parent's clients
        _inherited.extend(_writers.values())
        _writers.clear()
        _writers_process = os.getpid()
    key = (client, task.name)
    if key not in _writers:
        return None
    _writers.move_to_end(key)
    return _writers[key]


def _new_writer(client: ClientSettings, task: StreamTask) -> _TaskWriter:
    try:
        made = _TaskWriter(client, task.name)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._INVALID_ARG:
            raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
        raise
    _writers[client, task.name] = made
    while len(_writers) > KEPT_WRITERS:
        _writers.popitem(last=False)[1].close()
    return made


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
        reason = (
            "a later attempt of the same task has taken over, another query runs with a copy of this one's checkpoint, "
            "or the task took longer than kafka.transaction.timeout.ms"
        )
    elif cause.code() in _AWAY:
        reason = f"the brokers were away for {ANSWER_TIMEOUT_S / 60:.0f} minutes ({cause.str()})"
    elif cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        reason = (
            "the broker's transaction.max.timeout.ms is below the 15 minutes asked for: "
            "set the option kafka.transaction.timeout.ms"
        )
    return SourceError(f"the transaction of {task} {what}: {reason}")
