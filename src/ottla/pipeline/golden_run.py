"""Running a job over the input of a golden test, to the end of its event time.

    input ──▶ topics ──▶ stage of queries ──▶ their windows are closed ──▶ next stage ──▶ ... ──▶ outputs as lines

A window whose end the watermark has not passed would never come out, so each stage runs twice: over its input, and then
with its watermark at the end of time, as if later rows had come (`ottla.pipeline.windows`).
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

from ottla.pipeline import queries
from ottla.pipeline.change_columns import (
    COLUMNS,
    DELETE,
    OFFSET,
    OP,
    PARTITION,
    TRUNCATE,
    TS,
    VALID_FROM,
    VALID_TO,
    key_columns,
)
from ottla.pipeline.context import AVAILABLE_NOW, CHANGES, HISTORY, QuerySpec, RunContext
from ottla.pipeline.corrections import Corrections
from ottla.pipeline.golden import FIRST_TIMESTAMP_MS, GoldenError, Line, as_line, newest_by_key
from ottla.pipeline.inputs import Topic
from ottla.pipeline.job import CORRECT, Job
from ottla.pipeline.queries import Planned
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.intervals import RowChange, intervals
from ottla.pipeline.times import time_text
from ottla.pipeline.windows import close_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record to be read by the job; without a timestamp it gets the next millisecond after `FIRST_TIMESTAMP_MS`."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int = 0
    timestamp_ms: int | None = None


@dataclass(slots=True)
class _Captured:
    """Stands for a sink that is no topic: keeps the rows that it would be handed."""

    mode: str
    key: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)

    def start(self, rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
        if self.mode in (CHANGES, HISTORY):
            self.key = key_columns(rows.schema.fields)

        def keep(batch: MicroBatch) -> None:
            changed = batch.rows.withColumn(TS, F.unix_micros(TS)) if self.mode == HISTORY else batch.rows
            as_json = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            found = [json.loads(row[0]) for row in changed.select(as_json).collect()]
            if self.mode == "complete":
                self.lines.clear()
            self.lines.extend(map(self._line, found))

        return start_batches(rows, query, keep)

    def _line(self, row: dict[str, Any]) -> Line:
        value: dict[str, Any] | None = row
        if self.mode == CHANGES:  # what the table would be is compared, not how it came about
            is_there = row[OP] != DELETE
            value = {name: each for name, each in row.items() if name not in COLUMNS} if is_there else None
        return {"key": [row[name] for name in self.key] or None, "value": value}

    def correct(self, batch: MicroBatch, corrections: Corrections, context: RunContext) -> int:
        late = batch.rows.toArrow()
        texts = context.spark.createDataFrame([(json.dumps(line["value"]),) for line in self.lines], "value STRING")
        kept = texts.select(F.from_json("value", batch.rows.schema).alias("row")).select("row.*")
        merged: DataFrame = context.spark.createDataFrame(corrections.merge(kept.toArrow(), late), batch.rows.schema)
        as_json = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        self.lines.extend(self._line(json.loads(row[0])) for row in merged.select(as_json).collect())
        return len(late)

    def describe(self) -> str:
        return "rows kept for a test"

    def renamed(self, suffix: str) -> "_Captured":
        return self

    def read(self, context: RunContext) -> "DataFrame":
        return context.spark.createDataFrame([(json.dumps(line),) for line in self.lines], "value STRING")

    def outcome(self) -> list[Line]:
        """The rows, of each key the newest."""
        if self.mode == HISTORY:
            return [{"value": each} for each in _versions([line["value"] for line in self.lines], self.key)]
        kept = newest_by_key(self.lines) if self.key else self.lines
        return [{"value": line["value"]} for line in kept]


def _versions(changes: list[dict[str, Any]], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows that a table of all versions would have after these changes, whose times are in microseconds."""
    truncates = [each[TS] for each in changes if each[OP] == TRUNCATE]
    rows = sorted((each for each in changes if each[OP] != TRUNCATE), key=lambda each: (each[PARTITION], each[OFFSET]))
    found = intervals([RowChange(tuple(row[name] for name in key), row[OP], row[TS]) for row in rows], {}, truncates)
    return [
        {name: value for name, value in rows[each.number].items() if name not in COLUMNS}
        | {VALID_FROM: time_text(each.start), VALID_TO: None if each.end is None else time_text(each.end)}
        for each in found.new
    ]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a job for a test. `scratch` holds the checkpoints. With a `suffix`, which a broker with other topics
    needs, all topic names end in it."""

    spark: "SparkSession"
    job: Job
    directory: Path
    bootstrap: str
    scratch: Path
    suffix: str = ""

    def run(self, inputs: Mapping[str, Sequence[InputRecord]]) -> dict[str, list[Line]]:
        """Feed the job and give what comes out, by output: a topic's name in the job file, or a flow's.

        Raises PipelineError if the job fails, or KafkaException.
        """
        topics = self.job.reads() | self.job.writes()
        context = RunContext(
            spark=self.spark,
            bootstrap=self.bootstrap,
            job=self.job.name,
            run="-".join(filter(None, ("test", self.job.name, self.suffix))),
            home=self.scratch,
            directory=self.directory,
            suffix=self.suffix,
            written=topics,
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        names = {name: context.renamed(name) for name in sorted(topics)}
        try:
            self._create(admin, {names[name]: _partitions(inputs.get(name, ())) for name in names})
            for name, records in inputs.items():
                self._produce(names[name], records)
            captured = self._run_stages(context)
            return {**self._written(names), **{name: sink.outcome() for name, sink in captured.items()}}
        finally:
            with suppress(KafkaException):
                if self.suffix:
                    for deleted in admin.delete_topics(list(names.values())).values():
                        deleted.result()
            del admin  # else a failure's traceback keeps it, and it complains about the test's broker, which has ended

    def _run_stages(self, context: RunContext) -> dict[str, _Captured]:
        captured: dict[str, _Captured] = {}
        planned: list[Planned] = []
        for query in queries.plan(self.job, context, trigger=AVAILABLE_NOW):
            if isinstance(query.sink, Topic):
                planned.append(query)
            else:
                captured[query.name] = _Captured(query.mode, tuple(getattr(query.sink, "key", ())))
                planned.append(replace(query, sink=captured[query.name]))
        for stage in queries.stages(planned, context):
            # one after the other: Spark gives the worker of each ten seconds to start, which many at once can exceed
            for query in stage:
                queries.run_stage([query], context, self._checkpoint)
                if query.follows_late_rows:
                    position = self.scratch / "late" / f"{query.name}.json"
                    late = queries.follower(self.job, query, context, self._checkpoint(query.name), position)
                    late.catch_up(unheard=True)
            for query in stage:
                if close_windows(self._checkpoint(query.name)):
                    queries.run_stage([query], context, self._checkpoint)
        return captured

    def _checkpoint(self, query: str) -> Path:
        return self.scratch / "checkpoints" / query

    def _create(self, admin: AdminClient, partitions: Mapping[str, int]) -> None:
        # records of long ago must not be deleted while they are read
        new = [NewTopic(name, count, 1, config={"retention.ms": "-1"}) for name, count in partitions.items()]
        for created in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
            created.result()

    def _produce(self, topic: str, records: Sequence[InputRecord]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        refused: list[KafkaError] = []
        for number, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                timestamp=FIRST_TIMESTAMP_MS + number if record.timestamp_ms is None else record.timestamp_ms,
                on_delivery=lambda error, _message: None if error is None else refused.append(error),
            )
            producer.poll(0)
        producer.flush(_TIMEOUT_S)
        if refused:
            raise KafkaException(refused[0])

    def _written(self, names: Mapping[str, str]) -> dict[str, list[Line]]:
        """What the topics hold that the job writes."""
        flows = {flow.to.name: flow for flow in self.job.flows.values() if isinstance(flow.to, Topic)}
        original = {renamed: name for name, renamed in names.items()}
        outputs: dict[str, list[Line]] = {}
        for name in sorted(self.job.writes()):
            lines = [_restored(line, original) for line in self._read(names[name])]
            flow = flows.get(name)
            is_log = flow is None or (flow.mode == "append" and flow.late != CORRECT)
            outputs[name] = lines if is_log else newest_by_key(lines)
        return outputs

    def _read(self, topic: str) -> list[Line]:
        """All records of a topic as lines, in the order of their partitions."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "ottla-test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 20,
            }
        )
        found: dict[int, list[Line]] = {}
        try:
            numbers = set(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            while numbers:
                message = consumer.poll(_TIMEOUT_S)
                if message is None:
                    raise GoldenError(f"{self.bootstrap} does not answer any more")
                error, number = message.error(), message.partition() or 0
                if error is None:
                    headers: Any = message.headers() or []
                    found.setdefault(number, []).append(as_line(message.key(), message.value(), headers))
                elif error.code() == KafkaError._PARTITION_EOF:
                    numbers.discard(number)
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return [line for number in sorted(found) for line in found[number]]


def outputs_of(job: Job) -> list[str]:
    """The names of all outputs of a job that a test can expect something of."""
    flows = [name for name, flow in job.flows.items() if not isinstance(flow.to, Topic)]
    return [*sorted(job.writes()), *flows]


def _partitions(records: Sequence[InputRecord]) -> int:
    return max((record.partition for record in records), default=0) + 1


def _restored(line: Line, original: Mapping[str, str]) -> Line:
    """With the names of the job file where headers name topics of this run."""
    if "headers" not in line:
        return line
    headers = [
        [name, original.get(value, value) if isinstance(value, str) else value] for name, value in line["headers"]
    ]
    return {**line, "headers": headers}
