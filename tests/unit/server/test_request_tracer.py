"""Which requests are traced, and into which parts their time is divided."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ottla.protocol.api import ApiKey
from ottla.server.connection import Connection
from ottla.server.replies import ReplySlot
from ottla.server.request_tracer import LOOK_S, MOST_PER_SECOND, RequestTracer
from ottla.testing import ManualClock
from ottla.tracing import Attributes, Part

Traced = tuple[str, float, dict[str, float], Attributes]


class Served:
    """A tracer in front of a handler that the test writes; times in milliseconds."""

    def __init__(self, slow_ms: float = 100) -> None:
        self.clock = ManualClock()
        self.handle: Callable[[ReplySlot], None] = lambda slot: slot.fill([b"reply"])
        self.traced: list[Traced] = []
        self.later: list[Callable[[], None]] = []
        self.flusher = Mock()
        loop = Mock(call_later=lambda _, call, *arguments: self.later.append(lambda: call(*arguments)))
        self.tracer = RequestTracer(
            lambda frame, connection, slot: self.handle(slot),
            cast(Any, self),
            cast(asyncio.AbstractEventLoop, loop),
            self.clock.monotonic,
            self.clock.now_ms,
            slow_ms / 1000,
        )
        self.tracer.follow([self.flusher])
        self.connection = Mock(
            client_host="h", principal="User:alice", has_unsent=False, closed=False, read_at=float("inf")
        )

    def export(self, name: str, began_ns: int, ended_ns: int, parts: Sequence[Part], attributes: Attributes) -> None:
        found = {part.name: round((part.ended_ns - part.began_ns) / 1e6, 1) for part in parts}
        self.traced.append((name, round((ended_ns - began_ns) / 1e6, 1), found, attributes))

    def ask(self, api: ApiKey = ApiKey.PRODUCE) -> ReplySlot:
        slot = ReplySlot(self.connection)
        frame = int(api).to_bytes(2, "big") + b"\0\x09" + bytes(4) + b"\0\x03own"
        self.tracer(memoryview(frame), cast(Connection, self.connection), slot)
        return slot


def test_a_slow_produce_waits_for_its_group_commit_and_then_for_its_replicas() -> None:
    served = Served()
    served.connection.read_at = served.clock.monotonic()
    served.clock.advance(ms=5)
    served.handle = lambda slot: served.clock.advance(ms=2)
    slot = served.ask()
    began = served.clock.monotonic()
    served.flusher.on_round(began - 0.01, began + 0.02)  # began before the append: without it
    served.clock.advance(ms=30)
    served.flusher.on_round(began + 0.02, began + 0.03)
    served.clock.advance(ms=170)
    slot.fill([b"reply"])
    (name, total, parts, attributes) = served.traced[0]
    assert (name, total) == ("Produce", 207)
    assert parts == {"queue": 5, "append": 2, "sync": 30, "replication": 170}
    assert (attributes["messaging.client.id"], attributes["enduser.id"]) == ("own", "User:alice")


def test_fast_requests_and_those_that_wait_by_design_are_not_traced() -> None:
    served = Served()
    served.handle = lambda slot: served.clock.advance(ms=50)
    served.ask().fill([b""])
    slot = served.ask(ApiKey.FETCH)
    served.clock.advance(ms=5_000)
    slot.fill([b""])
    assert served.traced == []
    served.handle = lambda slot: served.clock.advance(ms=150)
    served.ask(ApiKey.FETCH).fill([b""])
    assert served.traced[0][2] == {"handler": 150}


def test_a_client_that_takes_its_reply_slowly_is_a_part_of_its_own() -> None:
    served = Served()
    served.handle = lambda slot: served.clock.advance(ms=150)
    served.connection.has_unsent = True
    served.ask(ApiKey.METADATA).fill([b""])
    assert served.traced == []
    served.clock.advance(ms=40)
    served.later.pop()()
    served.connection.has_unsent = False
    served.clock.advance(ms=20)
    served.later.pop()()
    assert served.traced[0][1:3] == (210, {"handler": 150, "response": 60})
    assert pytest.approx(0.02) == LOOK_S


def test_a_broker_that_is_slow_to_all_traces_some() -> None:
    served = Served(slow_ms=0)
    for _ in range(500):
        served.ask()
    assert len(served.traced) == MOST_PER_SECOND
    served.clock.advance(ms=1_000)
    served.ask()
    assert len(served.traced) == MOST_PER_SECOND + 1


def test_frames_that_are_no_requests_are_left_to_the_handler() -> None:
    served = Served(slow_ms=0)
    for frame in (b"", b"\0", bytes(9), b"\x7f\xff" + bytes(20)):
        slot = ReplySlot(served.connection)
        served.tracer(memoryview(frame), cast(Connection, served.connection), slot)
        assert slot.filled
    assert served.traced == []
