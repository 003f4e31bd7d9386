"""Requests to other nodes of the quorum end with an outcome, whatever comes between."""

import asyncio
import logging
from typing import Any

import pytest

from ottla.metadata.quorum.peers import Peers
from ottla.protocol.messages.vote import VoteRequest
from ottla.protocol.schema import Message
from ottla.quorum.effects import Destination, Send


class Outcomes:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, bool]] = []

    def answered(self, request_id: int, response: Message) -> None:
        raise AssertionError(response)

    def failed(self, request_id: int, *, unsupported: bool) -> None:
        self.failures.append((request_id, unsupported))


def test_an_unforeseen_error_is_logged_and_fails_the_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The machine sends no other request to a node until the last one has ended."""
    outcomes = Outcomes()

    async def broken(host: str, port: int) -> Any:
        raise ValueError(f"no way to {host}:{port}")

    async def run() -> None:
        peers = Peers("test", broken, outcomes)
        peers.send(Send(7, Destination(1, "n1", 9093), VoteRequest(cluster_id="cluster", topics=[]), timeout_ms=1000))
        for _ in range(10):
            await asyncio.sleep(0)
        await peers.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert outcomes.failures == [(7, False)]
    (record,) = caplog.records
    assert record.getMessage() == "VoteRequest to the quorum node at n1:9093 failed"
    assert record.exc_info is not None
