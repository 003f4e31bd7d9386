"""Traces of slow requests, and of records through connectors, as a collector gets them."""

import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Producer
from tests.connect.connectors import COLLECTED
from tests.support.connect import messages_of
from tests.support.eventually import eventually
from tests.support.otlp_collector import Collector
from tests.support.probe import free_port

from ottla import tracing
from ottla.errors import InvalidConfig
from ottla.testing import Broker, ConnectWorker
from ottla.tracing import Tracer, parsed

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADER = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


@pytest.fixture(scope="module")
def broker(collector: Collector) -> Iterator[Broker]:
    with Broker(config={"tracing.endpoint": collector.url, "tracing.slow.request.ms": "0"}) as started:
        yield started


def test_a_slow_request_is_a_trace_with_its_parts(broker: Broker, collector: Collector) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "traced", "acks": "all"})

    def came() -> list[dict[str, float]]:
        producer.produce("slow", b"x" * 500_000)
        assert producer.flush(20) == 0
        mine = [each for each in collector.named("Produce") if each.attributes["messaging.client.id"] == "traced"]
        return [parts for each in mine if "sync" in (parts := collector.parts_of(each))]

    parts = eventually(came, interval_s=0.3)[0]
    assert parts.keys() <= {"queue", "append", "sync", "replication", "response"}
    assert all(0 < seconds < 20 for seconds in parts.values())
    (span, *_) = [each for each in collector.named("Produce") if "append" in collector.parts_of(each)]
    assert (span.service, span.attributes["messaging.system"]) == ("ottla-broker", "kafka")
    assert span.attributes["request.bytes"] > 0
    assert sum(collector.parts_of(span).values()) == pytest.approx(span.seconds, abs=0.005)


def test_a_trace_goes_from_a_source_through_a_topic_into_a_sink(broker: Broker, collector: Collector) -> None:
    COLLECTED.clear()
    numbers = {"connector.class": "tests.connect.connectors.Numbers", "topic": "numbers", "count": "5"}
    with ConnectWorker(broker.bootstrap, {"tracing.endpoint": collector.url}) as worker:
        worker.put("numbers", numbers)
        found = eventually(lambda: messages_of(broker.bootstrap, "numbers", 5))
        headers = {dict(message.headers())["traceparent"] for message in found}
        assert len(headers) < 5, "records of a transaction share a trace"
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("single", b"1", headers=[("traceparent", HEADER)])
        producer.produce("several", b"1", headers=[("traceparent", HEADER)])
        producer.produce("several", b"2", headers=[("traceparent", HEADER.replace(TRACE[:4].encode(), b"1111", 1))])
        producer.produce("several", b"3", headers=[("traceparent", b"no trace"), ("other", b"x")])
        assert producer.flush(20) == 0
        collect = {"connector.class": "tests.connect.connectors.Collect"}
        for name in ("single", "several", "numbers"):
            worker.put(f"to-{name}", {**collect, "topics": name})
        eventually(lambda: len(COLLECTED) == 9)
        eventually(lambda: all(collector.named(f"to-{name} sink") for name in ("single", "several", "numbers")))
    (single,) = collector.named("to-single sink")
    assert (single.trace_id, single.parent_id) == (TRACE, "b7ad6b7169203331")
    (several,) = collector.named("to-several sink")
    assert several.trace_id != TRACE
    assert sorted(several.links) == sorted(["1111" + TRACE[4:], TRACE])
    sources = eventually(lambda: collector.named("numbers source"))
    assert sum(each.attributes["messaging.batch.message_count"] for each in sources) == 5
    assert {f"00-{each.trace_id}-{each.span_id}".encode() for each in sources} == {each[:-3] for each in headers}
    assert {each.service for each in sources} == {"ottla-connect"}


def test_a_collector_that_is_away_is_one_line_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "EXPORT_S", 0.5)
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    with caplog.at_level(logging.INFO):
        tracer = Tracer(endpoint, "test", "1")
        began = time.monotonic()
        for _ in range(5_000):
            tracer.export("request", 1, 2, [], {})
        assert time.monotonic() - began < 5
        eventually(lambda: caplog.records, timeout_s=30)
        tracer.close()
        assert time.monotonic() - began < 30
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith(f"traces cannot be sent to {endpoint} (")


def test_an_answer_without_an_end_is_not_read() -> None:
    broken_off = threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65_536)
            except OSError:
                broken_off.set()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        tracer = Tracer(f"http://127.0.0.1:{server.server_port}/v1/traces", "s", "i")
        tracer.export("slow", 1, 2, [], {})
        tracer.close()
        assert broken_off.wait(10)
        server.shutdown()
        serving.join()


def test_an_endpoint_that_is_none_is_named() -> None:
    with pytest.raises(InvalidConfig, match="has to be the address of a collector"):
        Tracer("127.0.0.1:4318", "test", "1")


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"01-" + HEADER[3:],
        HEADER.upper(),
        HEADER[:-1],
        HEADER + b"0" * 10_000,
        b"00-" + b"0" * 32 + HEADER[35:],
    ],
)
def test_a_header_that_is_no_trace_is_none(header: bytes | None) -> None:
    assert parsed(header) is None


def test_a_header_names_its_parent() -> None:
    found = parsed(HEADER)
    assert found is not None
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}", found.flags) == (TRACE, "b7ad6b7169203331", 1)
