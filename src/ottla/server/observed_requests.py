"""Stands between the connections and what handles their requests, to see when each began and ended.

connection -> ObservedRequests -> handler                    a `Watch` is made
connection <- Watch            <- ReplySlot.fill             it has seen the handler return, and the reply
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from ottla.records.batch import Buffer
from ottla.server.connection import Connection, FrameHandler
from ottla.server.replies import Owner, ReplySlot

CLIENT_ID_AT: Final = 8
"""API key, version and correlation id come before it in a request."""
MOST_NAME_BYTES: Final = 100
"""What is kept of a client id, which the client chooses."""


class ObservedRequests:
    """A frame handler that calls another one. On the loop's thread."""

    def __init__(self, handle: FrameHandler, monotonic: Callable[[], float], watch: Callable[..., "Watch"]) -> None:
        """`watch` makes the watch of a request, of this object, the frame, and the connection."""
        self._handle = handle
        self._watch = watch
        self.now = monotonic
        """Seconds on a clock that never goes back."""

    def __call__(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> bool | None:
        if len(frame) < CLIENT_ID_AT + 2:
            return self._handle(frame, connection, slot)
        watch = self._watch(self, frame, connection)
        slot.observe(watch.between)
        gives_way = self._handle(frame, connection, slot)
        watch.returned = self.now()
        return gives_way


class Watch(ABC):
    """Stands between a slot and its connection until the reply is there."""

    __slots__ = ("_owner", "returned")

    returned: float
    """When the handler has returned; 0.0 until then, and the reply may be there before."""

    def between(self, owner: Owner) -> "Watch":
        """Take the place of the slot's owner."""
        self._owner = owner
        return self

    @abstractmethod
    def slot_filled(self, slot: ReplySlot) -> None:
        """The reply is there: the owner has to be informed."""


def client_id_in(head: Buffer) -> str:
    """The client id in the beginning of a request, or the beginning of a long one; empty if it has none."""
    length = head[CLIENT_ID_AT] << 8 | head[CLIENT_ID_AT + 1]
    length = 0 if length & 0x8000 else min(length, MOST_NAME_BYTES)  # -1: no client id
    return bytes(head[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + length]).decode("utf-8", "replace")
