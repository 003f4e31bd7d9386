"""What the web servers of this package share: they wait for a slow request, and for a slow reader, only so long."""

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_S: Final = 20.0
"""After which a connection is closed that has not sent the head of a request that it began, or of its first one."""
BODY_S: Final = 60.0
"""Likewise for a body."""
UNREAD_S: Final = 30.0
"""After which a connection is closed whose client takes nothing of its answer, or some 48 kB in that time at most."""


class ImpatientProtocol(H11Protocol):
    """Closes connections whose requests do not come to their end, and those whose answers are not read: uvicorn lets
    them be, and the first ones would keep out all others. It does close those that are silent between two requests."""

    _waits: asyncio.TimerHandle | None = None
    _awaited: str | None = None
    """The part of a request that is on its way."""
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._await("head")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The buffer of the answer is full: what makes the answer waits, with all that it holds."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        self._forget_unread()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self._forget_unread()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._await("body")
        elif state is not h11.IDLE:
            self._await(None)
        elif self._awaited != "head":
            self._await("head" if self.conn.trailing_data[0] else None)

    def _await(self, part: str | None) -> None:
        if part == self._awaited:
            return
        if self._waits is not None:
            self._waits.cancel()
        self._awaited = part
        seconds = BODY_S if part == "body" else FIRST_REQUEST_S
        self._waits = None if part is None else self.loop.call_later(seconds, self.transport.abort)
