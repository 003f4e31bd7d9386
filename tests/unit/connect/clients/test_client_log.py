"""Lines of the client library while brokers are away."""

import logging

from ottla.connect.clients.client_log import OnceInAWhile

_AWAY = "FAIL [rdkafka#{client}] [thrd:127.0.0.1:{port}/1]: broker/1: Connect failed: refused (after {ms}ms)"


def line(client: str = "producer-1", port: int = 9092, ms: int = 0, level: int = logging.ERROR) -> logging.LogRecord:
    text = _AWAY.format(client=client, port=port, ms=ms)
    return logging.LogRecord("ottla.connect.client", level, "", 0, "%s", (text,), None)


def test_what_every_client_says_is_said_once_in_half_a_minute() -> None:
    now = [0.0]
    quiet = OnceInAWhile(lambda: now[0])
    assert quiet.filter(line())
    assert not any(quiet.filter(line(f"consumer-{number}", ms=number)) for number in range(50))
    other = logging.LogRecord("ottla.connect.client", logging.ERROR, "", 0, "FAIL: other words", (), None)
    assert quiet.filter(other)
    now[0] = 31.0
    again = line()
    assert quiet.filter(again)
    assert again.getMessage().endswith("(and 50 lines like this one since)")
    assert not quiet.filter(line())


def test_lines_for_debugging_are_all_said() -> None:
    quiet = OnceInAWhile()
    assert all(quiet.filter(line(level=logging.DEBUG)) for _ in range(3))
