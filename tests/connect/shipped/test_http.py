"""HTTP in and out against a server of the test's own."""

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ottla.connect.api import ConnectError, Retriable, TopicPartition
from ottla.connect.connectors import http
from ottla.connect.connectors.http import HttpSink, HttpSource
from tests.support.connect_tasks import TaskContext, opened, running, sink_record

ITEMS = TopicPartition("items", 0)


class Server:
    """Gives prepared answers; `seen` has each request's path, headers and body."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], str]] = []
        self.answer: Callable[[str, str], tuple[Any, ...]] = lambda _path, _body: (200, {})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                outer.seen.append((self.path, dict(self.headers), body))
                status, answer, *more = outer.answer(self.path, body)
                content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                for name, value in more[0].items() if more else ():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/things"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


def test_pages_are_followed_and_the_next_request_goes_on(server: Server) -> None:
    def answer(path: str, _: str) -> tuple[int, Any]:
        query = parse_qs(urlsplit(path).query)
        if "page" in query:
            return 200, {"data": [{"id": 3}], "next": None}
        first = int(query.get("since", ["0"])[0]) + 1
        ids = range(first, 3) if first < 3 else range(first, first + 1)
        return 200, {"data": [{"id": each} for each in ids], "next": "/things?page=2" if first == 1 else ""}

    server.answer = answer
    settings = {
        "http.url": server.url,
        "http.headers": "X-Who: me",
        "http.authorization": "Bearer secret",
        "topic": "things",
        "poll.interval.ms": "1",
        "response.records.pointer": "/data",
        "response.next.pointer": "/next",
        "offset.field": "id",
        "offset.parameter": "since",
        "key.field": "id",
    }
    with running(HttpSource, settings) as source:
        records = source.take(3)
        assert [(each.key, each.value) for each in records] == [(n, {"id": n}) for n in (1, 2, 3)]
        assert source.take(1)[0].value == {"id": 4}
        position = source.position
    assert server.seen[0][1]["X-Who"] == "me"
    assert server.seen[0][1]["Authorization"] == "Bearer secret"
    with running(HttpSource, settings, position) as source:
        assert source.take(1)[0].value == {"id": 5}


GOING_ON = {
    "topic": "things",
    "poll.interval.ms": "1",
    "response.records.pointer": "/data",
    "response.next.pointer": "/next",
    "offset.field": "at",
    "offset.parameter": "since",
}


def test_the_query_of_the_url_is_part_of_every_request(server: Server) -> None:
    server.answer = lambda path, _: (200, {"data": [{"at": 10}] if "since" not in path else []})
    settings = GOING_ON | {"http.url": f"{server.url}?tenant=a&api_key=k%26%20l&tag=x&tag=y&since="}
    with running(HttpSource, settings | {"offset.initial": "1"}) as source:
        source.until(lambda _: len(server.seen) >= 2)
    with running(HttpSource, settings, {"offset": 10}) as source:
        source.until(lambda _: len(server.seen) >= 4)
    for path, since in zip((each[0] for each in server.seen), ("1", "1", "10", "10"), strict=False):
        query = parse_qs(urlsplit(path).query)
        assert query == {"tenant": ["a"], "api_key": ["k& l"], "tag": ["x", "y"], "since": [since]}


@pytest.mark.parametrize("includes", [False, True], ids=["beyond", "from"])
@pytest.mark.parametrize(
    "pages",
    [
        [[3, 2, 1]],
        [["10", "9", "11"]],
        [[2, 3], [1, 2.5]],
        [["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00+01:00"]],
    ],
    ids=["newest first", "numbers as texts", "pages", "times"],
)
def test_an_answer_in_any_order_comes_once(server: Server, pages: list[list[Any]], includes: bool) -> None:
    every = [each for page in pages for each in page]
    ordered = sorted(every, key=lambda each: dt.datetime.fromisoformat(each) if "T" in str(each) else float(each))

    def answer(path: str, _: str) -> tuple[int, Any]:
        query = parse_qs(urlsplit(path).query)
        if "since" in query:
            rest = ordered[[str(each) for each in ordered].index(query["since"][0]) + (not includes) :]
            return 200, {"data": [{"at": each} for each in reversed(rest)]}
        number = int(query.get("page", ["0"])[0])
        following = f"/things?page={number + 1}" if number + 1 < len(pages) else ""
        return 200, {"data": [{"at": each} for each in pages[number]], "next": following}

    server.answer = answer
    settings = GOING_ON | {"http.url": server.url}
    with running(HttpSource, settings) as source:
        came = source.until(lambda _: len(server.seen) >= len(pages) + 3)
        assert [each.value["at"] for each in came] == ordered
        assert [(each.position or {})["offset"] for each in came] == ordered, "a crash after any of them loses none"
        position = source.position
        assert position is not None
        assert position["offset"] == ordered[-1]
    seen = len(server.seen)
    with running(HttpSource, settings, position) as source:
        assert source.until(lambda _: len(server.seen) >= seen + 3) == []


def test_records_of_one_offset_have_their_position_together(server: Server) -> None:
    there = [{"at": 7, "n": 1}, {"at": 7, "n": 2}, {"at": 7, "n": 2}]
    server.answer = lambda _path, _: (200, {"data": there})
    settings = GOING_ON | {"http.url": server.url}
    with running(HttpSource, settings) as source:
        came = source.take(3)
        assert [each.position is None for each in came] == [True, True, False], "amid them there is nowhere to go on"
        there.append({"at": 7, "n": 3})
        assert [each.value for each in source.take(1)] == [{"at": 7, "n": 3}], "it came late and is new"
        server.answer = lambda _path, _: (200, {"data": [{"at": 6}, *there]})
        requests = len(server.seen)
        assert source.until(lambda _: len(server.seen) >= requests + 2) == [], "a server that ignores the parameter"


def test_texts_that_only_the_server_can_compare_stay_in_its_order(server: Server) -> None:
    server.answer = lambda path, _: (
        200,
        {"data": [{"at": each} for each in ("b", "c", "a")] if "=" not in path else []},
    )
    with running(HttpSource, GOING_ON | {"http.url": server.url}) as source:
        assert [each.value["at"] for each in source.take(3)] == ["b", "c", "a"]
        source.until(lambda _: len(server.seen) >= 2)
    assert server.seen[1][0].endswith("?since=a")


def test_an_answer_too_long_to_sort_has_to_come_sorted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_SORTED", 2)
    pages = {"/things?since=0": ([9, 8], "?page=1"), "/things?page=1": ([7, 6], "")}

    def answer(path: str, _: str) -> tuple[int, Any]:
        data, following = pages[path]
        return 200, {"data": [{"at": each} for each in data], "next": following}

    server.answer = answer
    sentence = r"later pages have lower offsets than earlier ones: .* back to '0'"
    with running(HttpSource, GOING_ON | {"http.url": server.url, "offset.initial": "0"}) as source:
        assert [each.value["at"] for each in source.step()] == [8, 9]
        with pytest.raises(ConnectError, match=sentence):
            source.step()


@pytest.mark.parametrize(
    ("status", "body", "kind", "sentence"),
    [
        (503, "", Retriable, "answered 503 Service Unavailable"),
        (429, "", Retriable, "answered 429"),
        (401, "", ConnectError, r"check http\.authorization"),
        (404, "", ConnectError, r"check http\.url"),
        (200, "<html>", ConnectError, "with invalid JSON"),
    ],
)
def test_one_sentence_says_what_is_wrong(
    server: Server, status: int, body: str, kind: type[Exception], sentence: str
) -> None:
    server.answer = lambda _path, _body: (status, body)
    secret = server.url.replace("//", "//user:secret@") + "?api_key=secret"
    settings = {"http.url": secret, "topic": "t"}
    with running(HttpSource, settings) as source, pytest.raises(kind, match=sentence) as raised:
        source.step()
    assert "secret" not in str(raised.value), "it is shown in the status"


def sink(server: Server, context: Any = None, **more: str) -> Any:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return opened(HttpSink, {"http.url": server.url} | given, ITEMS, context=context)


def test_records_are_sent_one_by_one_or_together(server: Server) -> None:
    records = [sink_record("items", offset, {"n": offset}) for offset in range(3)]
    sink(server).write(records)
    assert [json.loads(body) for _, _, body in server.seen] == [{"n": n} for n in range(3)]
    assert [headers["Idempotency-Key"] for _, headers, _ in server.seen] == [f"items-0-{n}" for n in range(3)]
    server.seen.clear()
    sink(server, batching_enabled="true", batch_max_size="2").write(records)
    assert [json.loads(body) for _, _, body in server.seen] == [[{"n": 0}, {"n": 1}], [{"n": 2}]]


def test_a_batch_that_comes_again_goes_on_where_it_broke_off(server: Server) -> None:
    down = [True]
    server.answer = lambda _path, body: (503 if down[0] and '"n": 1' in body else 200, {})
    into = sink(server)
    records = [sink_record("items", offset, {"n": offset}) for offset in range(3)]
    with pytest.raises(Retriable):
        into.write(records)
    down[0] = False
    into.write(records)
    assert [json.loads(body)["n"] for _, _, body in server.seen] == [0, 1, 1, 2]


def test_a_request_of_several_names_what_is_in_it(server: Server) -> None:
    records = [sink_record("items", n, {"n": n, "p": p}, partition=p) for n in range(3) for p in range(2)]
    sink(server, batching_enabled="true", batch_max_size="2").write(records)
    assert {headers["Idempotency-Key"]: json.loads(body) for _, headers, body in server.seen} == {
        f"items-{p}-{first}-{last}": [{"n": n, "p": p} for n in range(first, last + 1)]
        for p in range(2)
        for first, last in ((0, 1), (2, 2))
    }


def test_only_the_bad_records_of_a_request_of_several_are_rejected(server: Server) -> None:
    down = [True]

    def answer(_: str, body: str) -> tuple[int, Any]:
        if '"n": 1' in body:
            return 422, "no such thing"
        return (503 if down[0] and '"n": 2' in body else 200), {}

    server.answer = answer
    context = TaskContext()
    into = sink(server, context, batching_enabled="true")
    records = [sink_record("items", offset, {"n": offset}) for offset in range(4)]
    with pytest.raises(Retriable):
        into.write(records)
    down[0] = False
    into.write(records)
    assert [(record.offset, "answered 422" in reason) for record, reason in context.rejected] == [(1, True)]
    keys = [headers["Idempotency-Key"] for _, headers, _ in server.seen]
    assert keys == [f"items-0-{each}" for each in ("0-3", "0-0", "1-1", "2-2", "2-3")]


def test_a_position_is_stored_without_secrets_of_the_url() -> None:
    settings = HttpSource.settings_model(**{"http.url": "https://me:pass@host:8443/a/b?token=x#y", "topic": "t"})
    assert HttpSource(settings, TaskContext()).part() == {"url": "https://host:8443/a/b"}  # type: ignore[arg-type]


def test_bad_records_are_rejected_by_themselves(server: Server) -> None:
    server.answer = lambda _path, body: (422 if '"n": 1' in body else 200, "no such thing")
    context = TaskContext()
    sink(server, context).write([sink_record("items", offset, {"n": offset}) for offset in range(3)])
    assert [(record.offset, "answered 422" in reason) for record, reason in context.rejected] == [(1, True)]
    server.answer = lambda _path, _body: (401, "")
    with pytest.raises(ConnectError, match=r"check http\.authorization"):
        sink(server).write([sink_record("items", 0, {})])
    with pytest.raises(ValueError, match="is no URL of http or https"):
        HttpSink.settings_model(**{"http.url": "ftp://x"})


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_would_drop_the_record_is_an_error(server: Server, status: int) -> None:
    server.answer = lambda path, _: (200, {}) if path == "/there" else (status, "", {"Location": "/there"})
    with pytest.raises(ConnectError, match=rf"answered {status} .* names /there: set http\.url"):
        sink(server).write([sink_record("items", 0, {"n": 0})])
    assert [path for path, _, _ in server.seen] == ["/things"]


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_of_the_whole_request_is_followed(server: Server, status: int) -> None:
    server.answer = lambda path, _: (200, {}) if path == "/there" else (status, "", {"Location": "/there"})
    sink(server).write([sink_record("items", 0, {"n": 0})])
    assert [(path, body) for path, _, body in server.seen] == [("/things", '{"n": 0}'), ("/there", '{"n": 0}')]
    with running(HttpSource, {"http.url": server.url, "topic": "t"}) as source:
        assert source.take(1)[0].value == {}
    server.answer = lambda _path, _body: (status, "", {"Location": "/things"})
    with pytest.raises(ConnectError, match="names /things"):
        sink(server).write([sink_record("items", 0, {})])


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:1/"])
def test_a_redirect_to_what_is_not_http_is_an_error_and_is_not_tried_again(server: Server, location: str) -> None:
    server.answer = lambda _path, _body: (307, "", {"Location": location})
    shown = location.replace(":///", r"://127\.0\.0\.1/")
    sentence = rf"redirects to {shown}, which is no URL of http or https: set http\.url"
    with (
        pytest.raises(ConnectError, match=sentence) as failed,
        running(HttpSource, {"http.url": server.url, "topic": "t"}) as source,
    ):
        source.step()
    assert not isinstance(failed.value, Retriable)
    with pytest.raises(ConnectError, match=sentence):
        sink(server).write([sink_record("items", 0, {})])
    pages = {"http.url": server.url, "topic": "t", "response.next.pointer": "/next"}
    server.answer = lambda _path, _body: (200, {"next": location})
    with (
        running(HttpSource, pages) as source,
        pytest.raises(ConnectError, match=r"is no URL of http or https: look at response\.next\.pointer") as failed,
    ):
        source.until(lambda _: False)
    assert not isinstance(failed.value, Retriable)


def test_a_redirect_that_leaves_encryption_is_an_error() -> None:
    with pytest.raises(ConnectError, match="would not be encrypted"):
        http._check_redirect(httpx.URL("https://user:secret@a/x?key=1"), httpx.URL("http://a/x"))


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("7", 7, 7),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 3600, 3600),
        ("99999999", 3600, 3600),
        ("Fri, 01 Jan 2021 00:00:00 GMT", 0, 0),
        ("soon", 0, 0),
    ],
)
def test_a_server_is_left_alone_as_long_as_it_says(server: Server, said: str, least: float, most: float) -> None:
    server.answer = lambda _path, _body: (429, "", {"Retry-After": said})
    with pytest.raises(Retriable) as caught:
        sink(server).write([sink_record("items", 0, {})])
    assert least <= caught.value.after_s <= most


def test_pages_that_go_round_in_a_circle_are_an_error(server: Server) -> None:
    server.answer = lambda path, _: (200, {"data": [1], "next": "/b" if path == "/a" else "/a"})
    settings = {
        "http.url": server.url,
        "topic": "t",
        "response.records.pointer": "/data",
        "response.next.pointer": "/next",
    }
    with running(HttpSource, settings) as source, pytest.raises(ConnectError, match=r"page .*/a follows upon itself"):
        source.until(lambda found: len(found) > 5)
    assert len(server.seen) == 3


def test_what_cannot_be_read_is_asked_for_again(server: Server) -> None:
    server.answer = lambda _path, _body: (200, "no gzip at all", {"Content-Encoding": "gzip"})
    with (
        running(HttpSource, {"http.url": server.url, "topic": "t"}) as source,
        pytest.raises(Retriable, match="answered what cannot be read"),
    ):
        source.step()


def test_half_of_a_pair_of_surrogates_is_sent_as_json_names_it(server: Server) -> None:
    sink(server).write([sink_record("items", 0, {"n": "\ud800"})])
    assert [body for _, _, body in server.seen] == [r'{"n": "\ud800"}']
