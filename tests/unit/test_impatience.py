"""Clients of the web servers that do not do their part: an answer that is not read."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
import uvicorn

from ottla import impatience
from ottla.impatience import ImpatientProtocol

PIECE = b"x" * 65_536


def test_an_answer_that_nobody_reads_holds_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impatience, "UNREAD_S", 0.1)
    asyncio.run(_read_nothing())


async def _read_nothing() -> None:
    ended = asyncio.Event()

    async def endless(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(_disconnected(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        ended.set()

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        config = uvicorn.Config(
            endless,
            lifespan="off",
            ws="none",
            http=ImpatientProtocol,
            log_config=None,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        with socket.create_connection(listening.getsockname()) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 10)
        server.should_exit = True
        await serving
        assert not server.server_state.connections


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
