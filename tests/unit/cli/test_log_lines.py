"""The log of `ottla serve`: formats, and floods."""

import json
import logging
import sys
from typing import Any

from ottla.cli.terminal.log_lines import MOST_PER_PERIOD, PERIOD_S, FloodGate, JsonLines, UtcText
from ottla.testing import ManualClock


def line(message: str = "closing %s", *args: object, at: int = 7, exc_info: Any = None) -> logging.LogRecord:
    record = logging.LogRecord("ottla.server", logging.WARNING, "server.py", at, message, args, exc_info)
    record.created, record.msecs = 1_767_225_600.25, 250
    return record


def test_text_has_its_time_in_utc() -> None:
    assert UtcText().format(line("closing %s", "a")) == "2026-01-01T00:00:00.250Z WARNING ottla.server: closing a"


def test_json_is_one_line_whatever_a_message_contains() -> None:
    try:
        raise ValueError("of two\nlines")
    except ValueError:
        text = JsonLines().format(line("closing %s", 'a "b"\nc\x00', exc_info=sys.exc_info()))
    assert "\n" not in text
    found = json.loads(text)
    assert (found["time"], found["level"], found["message"]) == (
        "2026-01-01T00:00:00.250Z",
        "WARNING",
        'closing a "b"\nc\x00',
    )
    assert "of two\nlines" in found["error"]


def test_a_flood_is_cut_and_counted_and_holds_no_other_line_back() -> None:
    clock = ManualClock()
    gate = FloodGate(clock.monotonic)
    assert sum(gate.filter(line("closing %s", number)) for number in range(MOST_PER_PERIOD + 50)) == MOST_PER_PERIOD
    assert gate.filter(line(at=8))
    clock.advance(seconds=PERIOD_S)
    late = line("closing %s", "x")
    assert gate.filter(late)
    assert late.getMessage() == "closing x (50 more lines like this one were left out before)"
