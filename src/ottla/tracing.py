"""Traces, exported over OTLP by OpenTelemetry's own library (the extra `tracing`): for brokers, workers and jobs alike.

Spans are handed to the library's queue, which is bounded and drops what is too much; a thread of it sends them. So the
caller never waits. A collector that does not answer is one line in the log, and one when it is back.
"""

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla import __version__
from ottla.errors import InvalidConfig, sentence

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.trace import Span, SpanContext

log = logging.getLogger(__name__)

HEADER: Final = "traceparent"
"""The header that carries a trace from record to record, in the form of W3C's Trace Context."""
MOST_QUEUED: Final = 2_048
"""Spans that wait to be sent; more are dropped."""
MOST_AT_A_TIME: Final = 512
SEND_EVERY_MS: Final = 1_000
EXPORT_S: Final = 10.0
LONGEST_ANSWER: Final = 4_096
"""Bytes that are read of a collector's answer, which is short."""
CLOSE_S: Final = 3.0
MOST_LINKS: Final = 32
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NOISY: Final = (
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.sdk._shared_internal",
)
"""Loggers of the library that report each failed attempt."""

Attributes = Mapping[str, str | int | float | bool]


class Part(NamedTuple):
    """A span within another one. Times are nanoseconds since 1970."""

    name: str
    began_ns: int
    ended_ns: int


class Parent(NamedTuple):
    """The place of a span in a trace, as in a header `traceparent`."""

    trace_id: int
    span_id: int
    flags: int


def parsed(header: bytes | str | None) -> Parent | None:
    """The parent that a header names; None for one that is missing or malformed."""
    if isinstance(header, bytes):
        header = header[:64].decode("ascii", "replace")
    match = None if header is None else _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    found = Parent(int(match[1], 16), int(match[2], 16), int(match[3], 16))
    return found if found.trace_id and found.span_id else None


class Tracer:
    """Exports spans to one collector. `close` sends what waits, for some seconds. Safe from any thread."""

    def __init__(self, endpoint: str, service: str, instance: str, *, setting: str = "tracing.endpoint") -> None:
        """`endpoint`: `http://collector:4318/v1/traces`. Raises InvalidConfig."""
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidConfig(
                f"{setting}: {endpoint!r} has to be the address of a collector that takes OTLP over HTTP, "
                "such as http://127.0.0.1:4318/v1/traces"
            )
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise InvalidConfig(
                f"{setting} needs the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http: install "
                "Ottla with the extra `tracing`"
            ) from error
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        exporter = _reporting(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S, session=_session()), endpoint)
        processor = BatchSpanProcessor(
            exporter,
            max_queue_size=MOST_QUEUED,
            schedule_delay_millis=SEND_EVERY_MS,
            max_export_batch_size=MOST_AT_A_TIME,
        )
        resource = Resource.create(
            {"service.name": service, "service.instance.id": instance, "service.version": __version__}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("ottla", __version__)

    def close(self) -> None:
        """Send what waits, and end; a collector that does not answer is not waited for."""
        ending = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def export(self, name: str, began_ns: int, ended_ns: int, parts: Sequence[Part], attributes: Attributes) -> None:
        """A span that is over, as the root of a trace, with its parts."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        span = self._tracer.start_span(name, kind=SpanKind.SERVER, start_time=began_ns, attributes=dict(attributes))
        within = set_span_in_context(span)
        for part in parts:
            self._tracer.start_span(part.name, context=within, start_time=part.began_ns).end(part.ended_ns)
        span.end(ended_ns)

    def begin(self, name: str, *, produces: bool, attributes: Attributes) -> "Span":
        """A span that begins now, as the root of a trace; `end` it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        kind = SpanKind.PRODUCER if produces else SpanKind.CONSUMER
        return self._tracer.start_span(name, context=Context(), kind=kind, attributes=dict(attributes))

    def continued(
        self, name: str, parents: Sequence[Parent], began_ns: int, ended_ns: int, attributes: Attributes
    ) -> None:
        """A span that is over, in the trace of its only parent; of several, it begins a trace of its own with links."""
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, set_span_in_context

        contexts = [_context_of(parent) for parent in parents[:MOST_LINKS]]
        within = set_span_in_context(NonRecordingSpan(contexts[0]), Context()) if len(contexts) == 1 else Context()
        links = [Link(each) for each in contexts] if len(contexts) > 1 else []
        self._tracer.start_span(
            name, context=within, kind=SpanKind.CONSUMER, links=links, start_time=began_ns, attributes=dict(attributes)
        ).end(ended_ns)


def traceparent_of(span: "Span") -> bytes:
    """The header that makes what follows a part of this span's trace."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}".encode()


def _context_of(parent: Parent) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    # what has been sampled elsewhere or not, this span is wanted
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(parent.flags | 1))


def _session() -> Any:
    """Reads little of an answer, and goes where no redirect leads: a collector that never ends its answer would fill
    the memory."""
    from requests import PreparedRequest, Response, Session

    class Brief(Session):
        def send(self, request: PreparedRequest, **given: Any) -> Response:
            answer = super().send(request, **{**given, "stream": True, "allow_redirects": False})
            raw = answer.raw
            answer.raw = BytesIO(raw.read(LONGEST_ANSWER, decode_content=False))
            raw.close()
            return answer

    return Brief()


def _reporting(exporter: Any, endpoint: str) -> Any:
    """The exporter, with one line in the log when its collector does not answer, and one when it does again."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Reporting(SpanExporter):
        is_away = False

        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            try:
                result, reason = exporter.export(spans), "it does not answer, or refuses"
            except Exception as error:
                result, reason = SpanExportResult.FAILURE, sentence(error)
            if (result is SpanExportResult.FAILURE) != self.is_away:
                self.is_away = not self.is_away
                if self.is_away:
                    log.warning("traces cannot be sent to %s (%s): they are dropped until it is back", endpoint, reason)
                else:
                    log.warning("traces are sent to %s again", endpoint)
            found: SpanExportResult = result
            return found

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return bool(exporter.force_flush(timeout_millis))

    return Reporting()
