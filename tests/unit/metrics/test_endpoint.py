"""The HTTP endpoint, with slow, rude and many readers."""

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.eventually import eventually

from ottla.errors import InvalidConfig
from ottla.metrics.endpoint import READERS, Address, Endpoint, Page, Visitor, addresses
from ottla.metrics.exposition import expose
from ottla.metrics.families import Measurements, counter, gauge, summary

REBOUND = {"Host": "rebound.example"}


def fail(_: Visitor) -> Page:
    raise RuntimeError("the disk is away")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    routes = {
        "/local": lambda visitor: Page(str(visitor.is_local).encode()),
        "/large": lambda _: Page(bytes(64 << 20)),
        "/fail": fail,
    }
    served = Endpoint(Address("127.0.0.1", 0), routes)
    yield served
    served.close()


def get(endpoint: Endpoint, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_only_reading_is_served(endpoint: Endpoint) -> None:
    assert get(endpoint, "/local") == (200, b"True")
    assert get(endpoint, "/local", "POST")[0] == 405
    assert get(endpoint, "/local", "HEAD") == (200, b"")
    status, listing = get(endpoint, "/no/such/page")
    assert status == 404
    assert b"/local" in listing


def test_a_page_that_rebinds_its_name_is_no_local_visitor(endpoint: Endpoint) -> None:
    assert get(endpoint, "/local", **REBOUND) == (200, b"False")


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
def test_a_client_of_a_proxy_is_no_local_visitor(endpoint: Endpoint, header: str) -> None:
    assert get(endpoint, "/local", **{header: "203.0.113.9"}) == (200, b"False")


def test_a_page_that_fails_gives_its_reason(endpoint: Endpoint) -> None:
    assert get(endpoint, "/fail") == (500, b"the disk is away\n")


def test_readers_that_read_nothing_do_not_keep_others_out_for_good(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.metrics.endpoint._Handler.timeout", 0.3)
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(READERS)]
    for each in slow:
        each.sendall(b"GET /large HTTP/1.0\r\n\r\n")

    def answered() -> bool:
        try:
            return get(endpoint, "/local")[0] == 200
        except (http.client.HTTPException, OSError):
            return False

    eventually(answered)
    for each in slow:
        each.close()


def test_readers_that_send_a_byte_now_and_then_do_not_keep_others_out_for_good(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.metrics.endpoint.LONGEST_S", 0.5)
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(READERS)]
    for each in slow:
        each.sendall(b"GET /local HTTP/1.0\r\nX-Slow: ")

    def are_gone() -> bool:
        for each in list(slow):
            try:
                each.sendall(b"a")
            except OSError:
                slow.remove(each)
                each.close()
        return not slow

    eventually(are_gone)
    assert get(endpoint, "/local")[0] == 200


def test_it_uses_a_bounded_number_of_threads(endpoint: Endpoint) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(30)]
    assert threading.active_count() <= before + READERS
    for each in idle:
        each.close()


@pytest.mark.parametrize(
    "wrong", ["127.0.0.1:9644", "https://127.0.0.1:9644", "http://host", "http://host:99999", "http://h:1/path"]
)
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=r"metrics\.listeners"):
        addresses(wrong)


def test_addresses_are_separated_by_commas() -> None:
    assert addresses("http://127.0.0.1:1, http://[::1]:2,") == (("127.0.0.1", 1), ("::1", 2))
    assert addresses("") == ()


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_measurements_are_exposed_in_both_formats(accept: str) -> None:
    to = Measurements()
    produced = counter("produced_total", "records", "Records.", "topic")
    to.add(produced, 3)
    to.add(produced, 2, 'a "quoted"\nname')
    to.add(gauge("held_bytes", "bytes", "Held."), 7)
    to.add_quantiles(summary("took_seconds", "seconds", "Took.", "request"), [("0.5", 0.25)], 4, 1.0, "Fetch")
    content_type, body = expose(to, accept)
    assert accept.partition(";")[0] in content_type
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert found[("produced_total",)] == 3
    assert found["produced_total", 'a "quoted"\nname'] == 2
    assert found[("held_bytes",)] == 7
    assert found["took_seconds", "0.5", "Fetch"] == 0.25
    assert found["took_seconds_count", "Fetch"] == 4
    assert ("process_cpu_seconds_total",) in found
