"""Requests that a web page can cause in a browser are refused; those of scripts, consoles and other workers are not."""

import pytest
from starlette.datastructures import Headers

from ottla.connect.rest.guard import Refusal, check

JSON = {"content-type": "application/json", "content-length": "2"}


def verdict(headers: dict[str, str], *, origins: tuple[str, ...] = (), is_local: bool = True) -> int:
    """The status of the refusal; 0 for none."""
    try:
        check(Headers({"host": "127.0.0.1:8083", **headers}), origins=origins, is_local=is_local)
    except Refusal as refusal:
        return refusal.status
    return 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        JSON,
        {"content-type": "Application/JSON; charset=utf-8", "content-length": "2"},
        {"content-type": "text/plain", "content-length": "0"},
        {"content-length": "2"},
        {"host": "localhost:8083"},
        {"host": "[::1]:8083"},
        {"host": "10.0.0.7:8083"},
        {"host": ""},
    ],
)
def test_scripts_and_workers_are_served(headers: dict[str, str]) -> None:
    assert verdict(headers) == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example", **JSON}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example:8083"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "[evil"}, 403),
        ({"content-type": "text/plain", "content-length": "2"}, 415),
        ({"content-type": "text/plain", "transfer-encoding": "chunked"}, 415),
        ({"content-type": "application/x-www-form-urlencoded", "content-length": "2"}, 415),
    ],
)
def test_pages_are_refused(headers: dict[str, str], status: int) -> None:
    assert verdict(headers) == status


def test_pages_that_are_named_are_served() -> None:
    page = {"origin": "https://console.example", **JSON}
    assert verdict(page, origins=("https://console.example",)) == 0
    assert verdict(page, origins=("https://other.example",)) == 403
    assert verdict(page, origins=("*",)) == 0


def test_a_worker_on_a_network_answers_to_any_name_of_its_machine() -> None:
    assert verdict({"host": "connect.internal:8083"}, is_local=False) == 0
    assert verdict({"host": "connect.internal:8083", "origin": "http://connect.internal:8083"}, is_local=False) == 403
