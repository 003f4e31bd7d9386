"""HTTP connectors connect to the addresses that the worker allows, whatever names, redirects and answers say."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpcore
import pytest
from tests.support.connect_tasks import TaskContext, opened, running, sink_record

from ottla.connect.api import ConfigError, ConnectError, Retriable, Targets, TopicPartition
from ottla.connect.connectors import http_client
from ottla.connect.connectors.http import HttpSink, HttpSource

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


class Site:
    """A server at 127.0.0.1; `paths` are those that it was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.answer: Answer = lambda _: (200, {}, b"[1]")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.paths.append(self.path)
                status, headers, body = outer.answer(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.stop()


def context(allowed: str) -> TaskContext:
    made = TaskContext()
    made.targets = Targets(allowed)
    return made


def read(url: str, allowed: str) -> list[Any]:
    with running(
        HttpSource, {"http.url": url, "topic": "t", "poll.interval.ms": "1"}, None, context(allowed)
    ) as source:
        return [each.value for each in source.take(1)]


def names(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[list[str]]]) -> None:
    """Resolve names to prepared addresses: another list at each question, the last one from then on."""
    genuine = socket.getaddrinfo

    def resolve(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in answers:
            return genuine(host, port, *more, **named)
        lists = answers[name]
        found = lists.pop(0) if len(lists) > 1 else lists[0]
        return [each for address in found for each in genuine(address, port, *more, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_loopback_target_is_refused_before_anything_is_sent(site: Site) -> None:
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"):
        with pytest.raises(ConfigError, match="loopback address, which this worker lets no connector reach"):
            read(f"http://{host}:{site.port}/", "")
    assert site.paths == []
    assert read(f"http://127.0.0.1:{site.port}/", "127.0.0.1") == [1]
    assert read(f"http://127.0.0.1:{site.port}/", "*") == [1]


def test_a_sink_is_refused_too(site: Site) -> None:
    sink = opened(HttpSink, {"http.url": f"http://localhost:{site.port}/"}, TopicPartition("t", 0), context=context(""))
    with pytest.raises(ConfigError, match="loopback"):
        sink.write([sink_record("t", 0, {})])
    assert site.paths == []


@pytest.mark.parametrize("kind", [HttpSource, HttpSink])
def test_an_address_in_the_url_is_refused_when_the_connector_is_made(kind: Any) -> None:
    settings = kind.settings_model(**{"http.url": "http://169.254.169.254/latest/meta-data", "topic": "t"})
    with pytest.raises(ConfigError, match=r"169.254.169.254 is a link-local address"):
        kind.check(settings, context(""))
    kind.check(settings, context("169.254.169.254"))
    kind.check(kind.settings_model(**{"http.url": "http://example.com/", "topic": "t"}), context(""))


def test_the_address_that_was_checked_is_the_one_connected_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public at first and private afterwards; the second answer is never used."""
    names(monkeypatch, {"rebound.example": [["192.0.2.1"], ["127.0.0.1"]]})
    connected: list[str] = []

    def connect(_self: Any, host: str, *_: Any) -> Any:
        connected.append(host)
        raise httpcore.ConnectError("unreachable")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with pytest.raises(Retriable, match="unreachable"):
        read(f"http://rebound.example:{site.port}/", "192.0.2.0/24")
    assert connected == ["192.0.2.1"]
    with pytest.raises(ConfigError, match=r"rebound.example \(127.0.0.1\) is a loopback address"):
        read(f"http://rebound.example:{site.port}/", "192.0.2.0/24")
    assert site.paths == []


def test_of_several_addresses_the_allowed_ones_are_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"both.example": [["169.254.169.254", "127.0.0.1"]], "billing.internal": [["127.0.0.1"]]})
    assert read(f"http://both.example:{site.port}/", "127.0.0.1") == [1]
    with pytest.raises(ConfigError, match="loopback"):
        read(f"http://billing.internal:{site.port}/", "billing.internal")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_checked_again(site: Site, status: int) -> None:
    site.answer = lambda asked: (
        (status, {"Location": f"http://localhost:{site.port}/inside"}, b"") if asked.path == "/" else (200, {}, b"[1]")
    )
    with pytest.raises(ConfigError, match="is a loopback address"):
        read(f"http://127.0.0.1:{site.port}/", "127.0.0.2")
    site.answer = lambda asked: (
        (status, {"Location": "http://169.254.169.254/latest/"}, b"") if asked.path == "/" else (200, {}, b"[1]")
    )
    with pytest.raises(ConfigError, match=r"169.254.169.254 is a link-local address"):
        read(f"http://127.0.0.1:{site.port}/", "127.0.0.1")


def test_a_page_that_names_another_one_inside_is_refused(site: Site) -> None:
    site.answer = lambda _: (200, {}, b'{"next": "http://169.254.169.254/latest/", "data": [1]}')
    settings = {
        "http.url": f"http://127.0.0.1:{site.port}/", "topic": "t", "response.next.pointer": "/next",
        "response.records.pointer": "/data",
    }  # fmt: skip
    with running(HttpSource, settings, None, context("127.0.0.1")) as source:
        source.take(1)
        with pytest.raises(ConfigError, match="link-local"):
            source.take(1)


def test_proxies_of_the_environment_do_not_get_around_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{site.port}")
    with pytest.raises(ConfigError, match="link-local"):
        read("http://169.254.169.254/", "127.0.0.1")
    assert site.paths == []


def test_an_answer_that_unpacks_to_too_much_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LARGEST_ANSWER", 1 << 20)
    bomb = gzip.compress(bytes(10 << 20))
    site.answer = lambda _: (200, {"Content-Encoding": "gzip"}, bomb)
    with pytest.raises(ConnectError, match="answered with more than 1 MiB"):
        read(f"http://127.0.0.1:{site.port}/", "127.0.0.1")
    for packed in ("gzip, gzip", "br", "zstd"):
        site.answer = lambda _, packed=packed: (200, {"Content-Encoding": packed}, gzip.compress(bomb))  # type: ignore[misc]
        with pytest.raises(ConnectError, match=f"packed its answer as {packed}"):
            read(f"http://127.0.0.1:{site.port}/", "127.0.0.1")
    site.answer = lambda _: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"[1]"))
    assert read(f"http://127.0.0.1:{site.port}/", "127.0.0.1") == [1]


def test_the_words_of_a_refusal_are_kept(site: Site) -> None:
    site.answer = lambda _: (404, {"X": "y"}, b"nothing")
    answer = http_client.client({}, 5.0, Targets("127.0.0.1")).get(f"http://127.0.0.1:{site.port}/")
    kept = http_client.whole(answer, "it")
    assert (kept.status_code, kept.reason_phrase, kept.text, kept.headers["x"]) == (404, "Not Found", "nothing", "y")


def test_an_answer_of_a_hundred_thousand_levels_is_refused(site: Site) -> None:
    site.answer = lambda _: (200, {}, b"[" * 100_000)
    with pytest.raises(ConnectError, match="answered with invalid JSON"):
        read(f"http://127.0.0.1:{site.port}/", "127.0.0.1")
