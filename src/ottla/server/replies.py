"""The replies of one connection: filled in any order, sent in the order of their requests."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Protocol

from ottla.log.file_region import FileRegion
from ottla.server.transport import Buffer, Transport

Piece = Buffer | FileRegion

MAX_BUFFERS_PER_SEND: Final = 512  # IOV_MAX is 1024 on Linux


class Owner(Protocol):
    """The connection of a slot."""

    def slot_filled(self, slot: "ReplySlot") -> None:
        """The slot has its reply."""
        ...


class ReplySlot:
    """A reply's place in the line. Filled once, in any order; sent in the order of the requests."""

    __slots__ = ("_owner", "filled", "on_abandoned", "pieces", "request_bytes")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.pieces: Sequence[Piece] = ()
        self.filled = False
        self.request_bytes = 0
        """What of the request is kept until it is answered; set by the frame's handler."""
        self.on_abandoned: Callable[[], None] | None = None
        """What to do if the connection is closed before the slot is filled."""

    def observe(self, wrap: "Callable[[Owner], Owner]") -> None:
        """Have another owner know when it is filled, which passes that on to the one there is."""
        self._owner = wrap(self._owner)

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Hand over the frame, size prefix included; empty for a request that gets no answer (acks=0)."""
        self.pieces = pieces
        self.filled = True
        self.on_abandoned = None
        self._owner.slot_filled(self)


class ReplyQueue:
    """Replies that were not sent, or whose requests were not answered yet."""

    __slots__ = ("_region_sent", "buffered_bytes", "slots", "unsent", "unsent_bytes")

    def __init__(self) -> None:
        self.slots: deque[ReplySlot] = deque()
        """Those of requests that have not been answered, or are behind one that has not."""
        self.unsent: deque[Piece] = deque()
        """What was not sent yet of replies whose turn has come."""
        self._region_sent = 0  # of the first piece, if that is a region
        self.unsent_bytes = 0
        """All replies that are known count."""
        self.buffered_bytes = 0
        """The part of them that is not in files."""

    def open_slot(self, owner: Owner) -> ReplySlot:
        """The place of the next request's reply."""
        slot = ReplySlot(owner)
        self.slots.append(slot)
        return slot

    def take(self, slot: ReplySlot) -> bool:
        """Take the reply from a slot that was filled. Whether it is its turn, and that of those filled behind it."""
        for piece in slot.pieces:
            size = len(piece)
            self.unsent_bytes += size
            if not isinstance(piece, FileRegion):
                self.buffered_bytes += size
        slots = self.slots
        if slots[0] is not slot:
            return False
        unsent = self.unsent
        while slots and slots[0].filled:
            # An empty piece would never count as sent.
            unsent.extend(piece for piece in slots.popleft().pieces if len(piece))
        return True

    def send(self, transport: Transport, is_in_memory: Callable[[FileRegion, int], bool]) -> None:
        """Send what the transport takes, up to a region whose part behind so many bytes is not in memory yet, as
        `is_in_memory` reports. Raises what the transport raises, BlockingIOError too."""
        unsent = self.unsent
        while unsent:
            first = unsent[0]
            if not isinstance(first, FileRegion):
                self._send_buffers(transport)
            elif is_in_memory(first, self._region_sent):
                self._send_region(transport, first)
            else:
                return

    def _send_buffers(self, transport: Transport) -> None:
        unsent = self.unsent
        batch: list[Buffer] = []
        more_follows = False
        for piece in islice(unsent, MAX_BUFFERS_PER_SEND):
            if isinstance(piece, FileRegion):
                more_follows = True
                break
            batch.append(piece)
        sent = transport.send(batch, more_follows=more_follows)
        self.unsent_bytes -= sent
        self.buffered_bytes -= sent
        for piece in batch:
            size = len(piece)
            if sent < size:
                unsent[0] = memoryview(piece)[sent:]
                return
            unsent.popleft()
            sent -= size

    def _send_region(self, transport: Transport, region: FileRegion) -> None:
        sent = transport.send_region(region, self._region_sent)
        self.unsent_bytes -= sent
        self._region_sent += sent
        if self._region_sent == len(region):
            self.unsent.popleft()
            self._region_sent = 0

    def abandon(self) -> None:
        """Drop everything: the connection is closed. Requests that are parked are given up."""
        slots, self.slots = self.slots, deque()
        self.unsent.clear()
        for slot in slots:
            if slot.on_abandoned is not None:
                slot.on_abandoned()
