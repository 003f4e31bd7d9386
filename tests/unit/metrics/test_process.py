"""The endpoint of a process without an event loop."""

import json
import logging
import urllib.error
import urllib.request

import pytest

from ottla.errors import InvalidConfig
from ottla.metrics.families import Measurements, gauge
from ottla.metrics.health import Health
from ottla.metrics.process import serving_metrics

ANSWER = gauge("ottla_answer", "", "To everything.")
ANYWHERE = "http://127.0.0.1:0"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_metrics_and_health_of_a_process() -> None:
    gathered: list[int] = []
    health = Health([], [])
    lives = True

    def gather(to: Measurements) -> None:
        gathered.append(1)
        to.add(ANSWER, 42)

    with serving_metrics(f"{ANYWHERE},{ANYWHERE}", gather, lambda: health, lambda: lives) as (one, other):
        logging.getLogger("ottla.test").warning("a line")
        first = get(one, "/metrics")
        assert "ottla_answer 42.0\n" in first[1]
        assert 'ottla_log_messages_total{level="WARNING"} 1.0\n' in first[1]
        assert "ottla_answer 42.0\n" in get(other, "/metrics")[1]
        assert gathered == [1], "scrapes within a second share one answer"
        assert get(one, "/health/live") == (200, "alive\n")
        assert get(one, "/health/ready")[0] == 200
        health, lives = Health(["no broker"], []), False
        status, body = get(one, "/health/ready")
        assert (status, json.loads(body)["reasons"]) == (503, ["no broker"])
        assert get(one, "/health/live")[0] == 503
        assert get(one, "/debug")[0] == 404
    with pytest.raises(urllib.error.URLError):
        get(one, "/health/live")


def test_nothing_is_gathered_without_an_address() -> None:
    def never(*_: object) -> Health:
        raise AssertionError

    with serving_metrics("", never, never) as ports:  # type: ignore[arg-type]
        assert ports == []


def test_an_address_that_cannot_be() -> None:
    with (
        pytest.raises(InvalidConfig, match="has to be http://host:port"),
        serving_metrics("https://127.0.0.1:1", lambda _: None, lambda: Health([], [])),
    ):
        pass
