"""What is counted of requests, whichever client sends them."""

from collections.abc import Callable
from typing import cast
from unittest.mock import Mock

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.framing import encode_request
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.connection import Connection
from ottla.server.metrics.request_meter import MOST_CLIENTS, SLOWEST, RequestMeter
from ottla.server.replies import ReplySlot
from ottla.testing import ManualClock


class Served:
    """A meter in front of a handler that the test writes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.handle: Callable[[ReplySlot], None] = lambda slot: slot.fill([b"reply"])
        self.meter = RequestMeter(
            lambda frame, connection, slot: self.handle(slot), self.clock.monotonic, self.clock.now_ms
        )
        self.connection = Mock(client_host="10.0.0.7", principal="User:alice")

    def ask(self, client_id: str | None = "one", frame: bytes | None = None) -> ReplySlot:
        slot = ReplySlot(self.connection)
        if frame is None:
            frame = b"".join(encode_request(MetadataRequest(topics=None), 12, 1, client_id))[4:]  # type: ignore[arg-type]
        self.meter(memoryview(frame), cast(Connection, self.connection), slot)
        return slot


@pytest.fixture
def served() -> Served:
    return Served()


def test_an_answer_that_comes_later_has_a_local_and_a_remote_part(served: Served) -> None:
    served.handle = lambda slot: served.clock.advance(ms=3)
    slot = served.ask()
    assert served.meter.by_api == {}
    served.clock.advance(ms=500)
    slot.fill([b"0123", b"45"])
    served.connection.slot_filled.assert_called_once_with(slot)
    counts = served.meter.by_api[ApiKey.METADATA]
    assert counts.total.total_s == pytest.approx(0.503)
    assert counts.local.total_s == pytest.approx(0.003)
    assert counts.remote.total_s == pytest.approx(0.5)
    assert (counts.by_version, counts.bytes_[1]) == ({12: 1}, 6)
    (slow,) = served.meter.slowest()
    assert (slow.api, slow.client_id, slow.principal) == ("METADATA", "one", "User:alice")


def test_a_slow_request_has_its_own_time_also_where_it_is_counted_later(served: Served) -> None:
    def handle(slot: ReplySlot) -> None:
        served.clock.advance(ms=2)
        slot.fill([b"x"])

    served.handle = handle
    served.ask()
    answered_ms = served.clock.now_ms()
    served.clock.advance(ms=600_000)
    (slow,) = served.meter.slowest()
    assert slow.at_ms == answered_ms


def test_an_answer_at_once_is_all_local(served: Served) -> None:
    def handle(slot: ReplySlot) -> None:
        served.clock.advance(ms=2)
        slot.fill([b"x"])

    served.handle = handle
    served.ask()
    counts = served.meter.by_api[ApiKey.METADATA]
    assert counts.local.total_s == counts.total.total_s == pytest.approx(0.002)


def test_frames_that_are_no_requests_are_left_to_the_handler(served: Served) -> None:
    for frame in (b"", b"\0", b"\0\3\0", bytes(9), b"\x7f\xff" + bytes(20), b"\0\3\0\x0c" + bytes(4) + b"\x7f\xff"):
        assert served.ask(frame=frame).filled
    assert set(served.meter.by_api) <= {ApiKey.METADATA, ApiKey.PRODUCE}


def test_clients_that_invent_names_take_a_bounded_place(served: Served) -> None:
    served.ask("first")
    for number in range(2 * MOST_CLIENTS):
        served.clock.advance(ms=1)
        served.ask(f"invented-{number}" + "x" * 20_000)
    assert len(served.meter.by_client) <= MOST_CLIENTS
    assert ("first", "10.0.0.7") not in served.meter.by_client
    assert max(len(name) for name, _ in served.meter.by_client) <= 100
    assert len(served.meter.slowest()) <= SLOWEST


def test_names_that_read_as_one_take_a_bounded_place(served: Served) -> None:
    for number in range(2 * MOST_CLIENTS):
        name = b"".join(bytes([0x80 + (number >> shift & 0x3F)]) for shift in (0, 6))
        head = b"\0\3\0\x0c" + bytes(4) + len(name).to_bytes(2, "big") + name
        served.ask(frame=head + b"\0\0")
    assert len(served.meter.by_client) == 1
    assert len(served.meter._known) <= MOST_CLIENTS


def test_the_slowest_requests_of_the_last_hour_are_remembered(served: Served) -> None:
    for number in range(200):
        served.handle = lambda slot, ms=number: (served.clock.advance(ms=ms), slot.fill([b"x"]))[1]  # type: ignore[misc]
        served.ask(f"client {number}")
    assert [slow.client_id for slow in served.meter.slowest()][:2] == ["client 199", "client 198"]
    assert len(served.meter.slowest()) == SLOWEST
    served.clock.advance(seconds=3601)
    assert served.meter.slowest() == []
    served.handle = lambda slot: slot.fill([b"x"])
    served.ask(None)
