"""A collector of traces, which takes OTLP over HTTP and keeps the spans."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received(NamedTuple):
    """A span."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    seconds: float
    attributes: Mapping[str, Any]
    links: list[str]
    service: str


class Collector:
    """Listens on a port of its own, in a thread; a context manager."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Where traces go."""
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def named(self, name: str) -> list[Received]:
        """The spans of this name that have come."""
        return [each for each in list(self.spans) if each.name == name]

    def parts_of(self, span: Received) -> dict[str, float]:
        """The seconds of the spans within one."""
        return {each.name: each.seconds for each in list(self.spans) if each.parent_id == span.span_id}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _spans(request: ExportTraceServiceRequest) -> list[Received]:
    found = []
    for resource in request.resource_spans:
        service = next(each.value.string_value for each in resource.resource.attributes if each.key == "service.name")
        for scope in resource.scope_spans:
            found += [
                Received(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes},
                    [each.trace_id.hex() for each in span.links],
                    service,
                )
                for span in scope.spans
            ]
    return found
