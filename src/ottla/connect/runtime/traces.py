"""Traces of tasks: each transaction of a source begins one, which the header `traceparent` carries to the sinks.

    source: span of a transaction --> records with its `traceparent` --> topic --> sink: span of a batch, in that trace

A record that has a `traceparent`, such as one that a mirror copies, keeps it. A sink's batch of several traces begins a
trace of its own that links to them.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.connect.errors import ConfigError
from ottla.connect.herder.state import TaskId
from ottla.connect.records import SinkRecord
from ottla.connect.runtime.chain import Encoded
from ottla.errors import InvalidConfig
from ottla.tracing import HEADER, MOST_LINKS, Parent, Tracer, parsed, traceparent_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def tracer_of(endpoint: str | None, worker: str) -> Tracer | None:
    """The tracer of a worker; None without an endpoint. Raises ConfigError."""
    try:
        return None if endpoint is None else Tracer(endpoint, "ottla-connect", worker)
    except InvalidConfig as wrong:
        raise ConfigError(str(wrong), "tracing.endpoint") from None


class SourceTraces:
    """Those of a source's task; used by its thread."""

    def __init__(self, tracer: Tracer, task: TaskId) -> None:
        self._tracer, self._task = tracer, task
        self._span: Span | None = None
        self._header: tuple[str, bytes] | None = None
        self._records = 0

    def marked(self, record: Encoded) -> Encoded:
        """The record as a part of the trace of its transaction, unless it is one of another trace."""
        if any(name == HEADER for name, _ in record.headers):
            return record
        if self._header is None:
            name, number = self._task
            attributes: dict[str, str | int] = {"messaging.system": "kafka", "connector": name, "task": number}
            self._span = self._tracer.begin(f"{name} source", produces=True, attributes=attributes)
            self._header = HEADER, traceparent_of(self._span)
        self._records += 1
        return record._replace(headers=[*record.headers, self._header])

    def ended(self, *, is_committed: bool) -> None:
        """The transaction is committed, or given up."""
        span, self._span, self._header = self._span, None, None
        if span is not None:
            span.set_attribute("messaging.batch.message_count", self._records)
            span.set_attribute("committed", is_committed)
            span.end()
        self._records = 0


class SinkTraces:
    """Those of a sink's task; used by its thread."""

    def __init__(self, tracer: Tracer, task: TaskId) -> None:
        self._tracer, self._task = tracer, task

    def wrote(self, parents: Iterable[Parent], count: int, took_s: float) -> None:
        """The target has taken a batch with records of these traces."""
        name, number = self._task
        ended_ns = time.time_ns()
        self._tracer.continued(
            f"{name} sink",
            list(parents),
            ended_ns - int(took_s * 1e9),
            ended_ns,
            {"messaging.system": "kafka", "connector": name, "task": number, "messaging.batch.message_count": count},
        )


def traces_in(batch: Iterable[SinkRecord]) -> list[Parent]:
    """The traces that records are parts of, each once: the first ones, where there are many."""
    found: dict[bytes, Parent] = {}
    for record in batch:
        for name, value in record.raw_headers:
            if name == HEADER and value is not None and value not in found:
                parent = parsed(value)
                if parent is not None:
                    found[value] = parent
        if len(found) >= MOST_LINKS:
            break
    return list(found.values())
