"""HTTP in and out: a resource that is asked again and again, and records sent to a webhook."""

import contextlib
import datetime as dt
import hashlib
import ipaddress
import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import field_validator

from ottla.connect.api import (
    BadRecord,
    ConfigError,
    ConnectError,
    Context,
    Part,
    Position,
    Retriable,
    SecretStr,
    Settings,
    Sink,
    SinkContext,
    SinkRecord,
    Source,
    SourceContext,
    SourceRecord,
    Targets,
    TopicPartition,
    Yielded,
    setting,
)
from ottla.connect.connectors.formats.json_text import plain

if TYPE_CHECKING:
    import httpx

_SLEEP_S: Final = 0.5
_BUSY: Final = (408, 425, 429)
_REFUSED: Final = (401, 403, 404, 405, 407)
_SAME_REQUEST: Final = (307, 308)
"""Redirects that ask for the same request elsewhere; after the others a client asks for a page, without the body."""
_MOST_REDIRECTS: Final = 10
_LONGEST_PAUSE_S: Final = 3600.0
"""That a server may ask for by Retry-After."""
_MOST_SORTED: Final = 10_000
"""Records of an answer that are put into order together, whatever their order on its pages."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?")


class HttpSettings(Settings):
    """Where requests go, and their headers about the sender."""

    http_url: str = setting("The URL.", importance="high")
    http_headers: str = setting("Headers, one a line: Name: value.", "")
    http_authorization: SecretStr | None = setting("Value of the header Authorization.", None)
    http_timeout_ms: int = setting("Milliseconds to wait for an answer.", 30_000, ge=1)

    @field_validator("http_url")
    @classmethod
    def _url(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise ValueError(f"{url!r} is no URL of http or https")
        return url

    @field_validator("http_headers")
    @classmethod
    def _lines(cls, headers: str) -> str:
        for line in filter(None, headers.splitlines()):
            if ":" not in line:
                raise ValueError(f"{line!r} is not of the form Name: value")
        return headers


class HttpSourceSettings(HttpSettings):
    """The requests, and the meaning of the responses."""

    topic: str = setting("Where the records go.", importance="high")
    http_method: Literal["GET", "POST"] = setting("Method of the request.", "GET")
    http_body: str = setting("Body of the request.", "")
    poll_interval_ms: int = setting("Milliseconds between two requests when there is nothing more.", 60_000, ge=1)
    response_records_pointer: str = setting("JSON pointer to the list of records, such as /data; empty: all.", "")
    response_next_pointer: str = setting("JSON pointer to the URL of the next page, such as /links/next.", "")
    offset_field: str = setting("Field of a record by which the next request goes on, such as id or updated_at.", "")
    offset_parameter: str = setting("Parameter of the URL that has the last value of offset.field, such as since.", "")
    offset_initial: str = setting("The value of the first request.", "")
    key_field: str = setting("Field of a record that is its key; empty: none.", "")


class _Checked:
    """Looks at the address of a URL before a connector is accepted; names are looked at when they are connected to."""

    @classmethod
    def check(cls, settings: HttpSettings, context: Context) -> None:
        host = urlsplit(settings.http_url).hostname or ""
        with contextlib.suppress(ValueError):
            problem = context.targets.refusal(host, str(ipaddress.ip_address(host)))
            if problem is not None:
                raise ConfigError(problem, "http.url")


class HttpSource(_Checked, Source[HttpSourceSettings]):
    """Records of a resource in JSON, page by page, from where the last request came to.

    With `offset.field` and `offset.parameter` each record comes once, as far as the server answers the same question
    the same way; without them everything comes each time. Offsets that are numbers or times may come in any order: the
    position is the greatest one, and records below it, which a server that understands the parameter does not send, are
    left out. Of other texts only the server knows the order: the position is the last one of the answer.
    """

    def __init__(self, settings: HttpSourceSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._client: httpx.Client | None = None

    def part(self) -> Part:
        return {"url": _shown(self.settings.http_url)}  # it is stored with each position

    def read(self, position: Position | None) -> Iterator[Yielded]:
        settings = self.settings
        last = position["offset"] if position else settings.offset_initial or None
        self._client = _client(settings, self.context.targets)
        while True:
            asked_at = time.monotonic()
            url: str | None = settings.http_url
            parameters = (
                {settings.offset_parameter: str(last)} if settings.offset_parameter and last is not None else None
            )
            asked = position if settings.offset_parameter else None
            answer = _Answer(asked, last, settings.http_url) if settings.offset_field else None
            pages: set[str] = set()
            while url is not None:
                if url in pages:
                    raise ConnectError(f"page {_shown(url)} follows upon itself: look at response.next.pointer")
                pages.add(url)
                page = self._page(url, parameters)
                url, parameters = self._next(page, url), None
                batch = [self._record(each) for each in self._records(page)]
                if answer is not None:
                    batch = answer.in_order(batch, is_last=url is None)
                    position = answer.position
                yield batch
            last = position["offset"] if position else last
            wakes_at = asked_at + settings.poll_interval_ms / 1000
            yield None
            while time.monotonic() < wakes_at:
                self.context.sleep(min(_SLEEP_S, max(0.0, wakes_at - time.monotonic())))
                yield None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _page(self, url: str, parameters: Mapping[str, str] | None) -> Any:
        if self._client is None:
            raise ConnectError("the source was closed")
        content = self.settings.http_body or None
        answer = _send(self._client, self.settings.http_method, url, content, parameters)
        _check(answer, url)
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise ConnectError(f"{_shown(url)} answered with invalid JSON: {error}") from error

    def _records(self, page: Any) -> list[Any]:
        found = _at(page, self.settings.response_records_pointer)
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def _next(self, page: Any, url: str) -> str | None:
        if not self.settings.response_next_pointer:
            return None
        following = _at(page, self.settings.response_next_pointer)
        return urljoin(url, following) if isinstance(following, str) and following else None

    def _record(self, value: Any) -> SourceRecord:
        settings = self.settings
        position = None
        if settings.offset_field:
            offset = value.get(settings.offset_field) if isinstance(value, dict) else None
            if offset is None:
                raise ConnectError(
                    f"a record of {_shown(settings.http_url)} has no field {settings.offset_field} (offset.field)"
                )
            if not isinstance(offset, str | int | float) or isinstance(offset, bool):
                raise ConnectError(
                    f"field {settings.offset_field} (offset.field) of a record of {_shown(settings.http_url)} is "
                    f"{offset!r:.100}: it has to be a number or a text"
                )
            position = {"offset": offset}
        key = value.get(settings.key_field) if settings.key_field and isinstance(value, dict) else None
        return SourceRecord(topic=settings.topic, key=key, value=value, position=position)


class _Answer:
    """One answer of some pages: its records in the order of their offsets, each with the position that it leads to.

    A position is `{"offset": greatest, "same": [digests of the records that have it]}`: servers differ in whether
    `since`
    includes the value itself, so records at the position are recognized by their content.
    """

    def __init__(self, asked: Position | None, last: Any, url: str) -> None:
        """`asked`: the position that the request named, beyond which records are new; None: all are."""
        self.position = asked
        self._asked, self._last, self._url = asked, last, url
        self._held: list[SourceRecord] = []
        self._reached: Any = None
        """The greatest offset that has been handed out of this answer."""

    def in_order(self, page: Sequence[SourceRecord], *, is_last: bool) -> list[SourceRecord]:
        """Add a page. Returns the records that can be handed out. Raises ConnectError if one comes too late."""
        self._held += page
        if not is_last and len(self._held) < _MOST_SORTED:
            return []
        records, self._held = self._held, []
        offsets = [_offset(each) for each in records]
        reached = [] if self._reached is None else [self._reached]
        asked = [self._asked["offset"]] if self._asked is not None else []
        ranks = _ranks([*asked, *reached, *offsets])
        if ranks is not None:
            floor = ranks[0] if asked else None
            first = ranks[len(asked)] if reached else None
            ranks = ranks[len(asked) + len(reached) :]
            if first is not None and any(each < first and (floor is None or each > floor) for each in ranks):
                raise ConnectError(
                    f"{_shown(self._url)} has more than {_MOST_SORTED:,} records, and later pages have lower offsets "
                    "than earlier ones: have the server sort them upwards (by a parameter in http.url), set the "
                    f"connector's offset back to {self._last!r}, from which it was asked, and restart it"
                )
            order = sorted(range(len(records)), key=ranks.__getitem__)
            records = [records[n] for n in order if floor is None or ranks[n] >= floor]
        return self._positioned(records)

    def _positioned(self, records: Sequence[SourceRecord]) -> list[SourceRecord]:
        """Records that are new; the last of those with one offset has the position after them."""
        fresh: list[SourceRecord] = []
        known = set(self._asked.get("same", ())) if self._asked is not None else set()
        for offset, group in itertools.groupby(records, key=_offset):
            digests = [(each, _digest(each.value)) for each in group]
            if self._asked is not None and self._asked["offset"] == offset:
                digests = [(each, digest) for each, digest in digests if digest not in known]
            if not digests:
                continue
            same = self.position.get("same", ()) if self.position and self.position["offset"] == offset else ()
            self._reached = offset
            self.position = {"offset": offset, "same": [*same, *(digest for _, digest in digests)]}
            fresh += (replace(each, position=None) for each, _ in digests[:-1])
            fresh.append(replace(digests[-1][0], position=self.position))
        return fresh


class HttpSinkSettings(HttpSettings):
    """How records are sent."""

    http_method: Literal["POST", "PUT", "PATCH"] = setting("Method of the request.", "POST")
    http_content_type: str = setting("Content-Type header of requests.", "application/json")
    batching_enabled: bool = setting("Whether several records are sent at once, as an array of JSON.", False)
    batch_max_size: int = setting("Most records of one request.", 500, ge=1)


class HttpSink(_Checked, Sink[HttpSinkSettings]):
    """Each record, or several as an array, sent to a webhook.

    At least once: every request has a header Idempotency-Key, topic-partition-offset of its record, or of several
    topic-partition-first-last, by which a receiver knows what it has already. Answers 5xx, 408, 425 and 429 are tried
    again; other 4xx mean that the record is bad, but for 401, 403, 404, 405 and 407, which no record can help. Records
    that were refused together are sent one by one (as arrays of one), so that only the bad ones are rejected.
    """

    aliases: ClassVar[tuple[str, ...]] = ("io.aiven.kafka.connect.http.HttpSinkConnector",)

    def __init__(self, settings: HttpSinkSettings, context: SinkContext) -> None:
        super().__init__(settings, context)
        self._client: httpx.Client | None = None
        self._sent: dict[TopicPartition, int] = {}
        self._unsent: dict[TopicPartition, int] = {}

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._sent, self._unsent = {}, {}
        if self._client is None:
            more = {"Content-Type": self.settings.http_content_type}
            self._client = _client(self.settings, self.context.targets, more)

    def write(self, batch: Sequence[SinkRecord]) -> None:
        size = self.settings.batch_max_size if self.settings.batching_enabled else 1
        by_partition: dict[TopicPartition, list[SinkRecord]] = {}  # for a key names offsets of one
        for each in batch:
            if each.offset >= self._sent.get(each.origin, 0):
                by_partition.setdefault(each.origin, []).append(each)
        for origin, fresh in by_partition.items():
            for first in range(0, len(fresh), size):
                if self.context.stopping:
                    self._unsent[origin] = fresh[first].offset
                    break
                self._send(fresh[first : first + size])

    def flush(self) -> Mapping[TopicPartition, int] | None:
        return self._unsent

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _send(self, records: Sequence[SinkRecord]) -> None:
        if self._client is None:
            raise ConnectError("the sink was not opened")
        settings, first, last = self.settings, records[0], records[-1]
        value = [each.value for each in records] if settings.batching_enabled else first.value
        key = f"{first.origin.topic}-{first.origin.partition}-{first.offset}"
        if settings.batching_enabled:  # after a crash a request may end elsewhere: then it is not the same one
            key += f"-{last.offset}"
        answer = _send(
            self._client, settings.http_method, settings.http_url, _content(value), None, {"Idempotency-Key": key}
        )
        if 400 <= answer.status_code < 500 and answer.status_code not in (*_BUSY, *_REFUSED):
            if len(records) > 1:
                for record in records:
                    self._send([record])
                return
            reason = f"{_shown(settings.http_url)} answered {answer.status_code} to {key}: {answer.text[:200]}"
            self.context.reject(first, BadRecord(reason, first))
        else:
            _check(answer, settings.http_url)
        self._sent[last.origin] = last.offset + 1  # a batch that comes again goes on here


def _client(settings: HttpSettings, targets: Targets, more: Mapping[str, str] | None = None) -> "httpx.Client":
    from ottla.connect.connectors.http_client import client

    headers = dict(more or {})
    for line in filter(None, settings.http_headers.splitlines()):
        name, _, value = line.partition(":")
        headers[name.strip()] = value.strip()
    if settings.http_authorization is not None:
        headers["Authorization"] = settings.http_authorization.get_secret_value()
    return client(headers, settings.http_timeout_ms / 1000, targets)


def _send(
    client: "httpx.Client",
    method: str,
    url: str,
    content: "str | bytes | None",
    parameters: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> "httpx.Response":
    """Raises Retriable if no answer comes.

    Redirects are followed if the request stays the same: a body is sent again or not at all.
    """
    import httpx

    from ottla.connect.connectors.http_client import whole

    try:
        # `params` of a request would take the place of the query that the URL has
        target = httpx.URL(url).copy_merge_params(parameters) if parameters else url
        asked = client.build_request(method, target, content=content, headers=headers)
        answer = client.send(asked, stream=True)
        for _ in range(_MOST_REDIRECTS):
            following = answer.next_request
            if following is None or (method != "GET" and answer.status_code not in _SAME_REQUEST):
                break
            answer.close()
            _check_redirect(answer.url, following.url)
            answer = client.send(following, stream=True)
        return whole(answer, _shown(str(answer.url)))
    except httpx.InvalidURL as error:
        raise ConfigError(f"{_shown(url)} is no URL: {error}", "http.url") from error
    except httpx.UnsupportedProtocol as error:
        raise ConnectError(f"{_shown(url)} is no URL of http or https: look at response.next.pointer") from error
    except httpx.TransportError as error:
        raise Retriable(f"{_shown(url)} does not answer: {str(error) or type(error).__name__}") from error
    except httpx.RequestError as error:
        raise Retriable(f"{_shown(url)} answered what cannot be read: {error}") from error


def _check_redirect(url: "httpx.URL", following: "httpx.URL") -> None:
    """Raises ConnectError for a redirect that is not followed: to a file, say, or with secrets in plain text."""
    sentence = f"{_shown(str(url))} redirects to {_shown(str(following))}"
    if following.scheme not in ("http", "https"):
        raise ConnectError(f"{sentence}, which is no URL of http or https: set http.url to where it is to go")
    if url.scheme == "https" and following.scheme == "http":
        raise ConnectError(
            f"{sentence}, where requests would not be encrypted: set http.url to that URL if it is to be used"
        )


def _shown(url: str) -> str:
    """A URL without what may be a secret in it: user and password, and the query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # of a page that a server named
        return "a page"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _check(answer: "httpx.Response", url: str) -> None:
    """Raises Retriable for an answer that another time may be better, ConnectError for other refusals."""
    status = answer.status_code
    if status < 300:
        return
    said = f"{_shown(url)} answered {status} {answer.reason_phrase}"
    if status >= 500 or status in _BUSY:
        raise Retriable(f"{said}: it is tried again", _retry_after_s(answer))
    if answer.has_redirect_location:
        raise ConnectError(f"{said} and names {answer.headers['location']}: set http.url to where it is to go")
    advice = "check http.authorization" if status in (401, 403, 407) else "check http.url and http.method"
    raise ConnectError(f"{said}: {advice}")


def _retry_after_s(answer: "httpx.Response") -> float:
    """Seconds that the server wants to be left alone; 0: it does not say. Source: RFC 9110, 10.2.3."""
    said = answer.headers.get("retry-after", "")
    try:
        seconds = (
            float(said) if said.isdigit() else (parsedate_to_datetime(said) - dt.datetime.now(dt.UTC)).total_seconds()
        )
    except (ValueError, TypeError):  # none, or one without a zone
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE_S)


def _content(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return json.dumps(value, default=plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can name and UTF-8 cannot hold
        return json.dumps(value, default=plain).encode()


def _at(document: Any, pointer: str) -> Any:
    """What an RFC 6901 pointer points at, or None."""
    for step in filter(None, pointer.split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdigit() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def _ranks(offsets: Sequence[Any]) -> list[Any] | None:
    """Values ordered as the offsets are, if these are all numbers or all times; None if their order is unknown."""
    numbers = [_number(each) for each in offsets]
    if None not in numbers:
        return numbers
    times = [_moment(each) for each in offsets]
    return times if None not in times else None


def _number(offset: Any) -> "int | float | Decimal | None":
    if isinstance(offset, int | float):
        return offset
    return Decimal(offset) if _NUMBER.fullmatch(offset) else None


def _moment(offset: Any) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(offset)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _offset(record: SourceRecord) -> Any:
    return record.position["offset"] if record.position is not None else None


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
