"""One client's connection: bytes in, frames to the dispatcher, replies out in the order of their requests.

The socket is read and written directly and without blocking (`loop.add_reader`), not through an asyncio transport: a
reply is handed to the kernel the moment it is ready, and buffers are never copied into a transport's queue.
See docs/adr/0001-raw-sockets.md.

    Transport (bytes) -> Framer (requests) -> handle_frame -> ReplyQueue (order) -> Transport

The connection drives the three, and stops reading while its client has enough under way: requests, unsent replies, or
memory. A frame's bytes are valid only until its handler returns; code that needs them longer copies them (`kept`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.log.file_region import FileRegion
from ottla.security.principals import ANONYMOUS
from ottla.server.framer import BadFrame, Framer
from ottla.server.memory import MemoryBudget
from ottla.server.replies import ReplyQueue, ReplySlot
from ottla.server.transport import Transport

if TYPE_CHECKING:
    from ottla.server.authentication import Authentication

log = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 1 << 20
MAX_IN_FLIGHT: Final = 256


Load = Callable[[FileRegion, int, Callable[[], None]], None]
"""Bring the part of a region that is sent next, from this position, into memory; then call the last argument."""


class FrameHandler(Protocol):
    """What the connection calls for each frame: answers through the slot, now or later."""

    def __call__(self, frame: memoryview, connection: "Connection", slot: ReplySlot) -> bool | None:
        """Raise `BadFrame` to close the connection. True: the next frame is handled in another turn of the loop."""
        ...


class Endpoints(NamedTuple):
    """Where a connection comes from, and where it arrived."""

    listener: str
    connection_id: int
    client_host: str
    client_port: int
    local_host: str
    local_port: int


class Connection:
    """Owned by its listener; everything runs on the loop's thread."""

    __slots__ = (
        "_closed_callback",
        "_consuming",
        "_finishes",
        "_framer",
        "_gives_way",
        "_handle_frame",
        "_handshaken",
        "_held_bytes",
        "_holds",
        "_is_loaded",
        "_load",
        "_loading",
        "_loop",
        "_max_frame_bytes",
        "_memory",
        "_muted_until",
        "_reading",
        "_replies",
        "_requests_bytes",
        "_resuming",
        "_sending_soon",
        "_transport",
        "_unmuting",
        "_waiting_for_memory",
        "_writing",
        "authentication",
        "client_host",
        "client_port",
        "closed",
        "connection_id",
        "kept",
        "last_active",
        "listener",
        "local_host",
        "local_port",
        "moved_bytes",
        "read_at",
        "spared",
    )

    def __init__(
        self,
        transport: Transport,
        endpoints: Endpoints,
        *,
        loop: asyncio.AbstractEventLoop,
        scratch: memoryview,
        handle_frame: FrameHandler,
        max_frame_bytes: int,
        memory: MemoryBudget,
        load: Load | None = None,
        spared: bool = False,
        authentication: "Authentication | None" = None,
        handshaken: "Callable[[Connection, str | None], None] | None" = None,
        closed: "Callable[[Connection], None]",
    ) -> None:
        """`load` brings a part of a file into memory, in a thread, for a client that was slow to take it; without it,
        the loop waits for the disk. A `spared` connection does not wait for memory that others hold. With an
        `authentication`, only small requests are taken until `authenticated` is called. `handshaken` is called when the
        transport is ready, or with the reason why it will not be."""
        self._transport = transport
        self._loop = loop
        self._handle_frame = handle_frame
        self._closed_callback = closed
        (
            self.listener,
            self.connection_id,
            self.client_host,
            self.client_port,
            self.local_host,
            self.local_port,
        ) = endpoints
        self.last_active = self.read_at = loop.time()
        self.closed = False
        self.authentication = authentication
        self._finishes = False
        self._max_frame_bytes = max_frame_bytes
        first_bytes = max_frame_bytes if authentication is None else min(authentication.max_bytes, max_frame_bytes)
        self._framer = Framer(scratch, max_frame_bytes=first_bytes, may_grow=self._may_grow)
        self.kept = self._framer.kept
        self._replies = ReplyQueue()
        self._memory = memory
        self._load = load
        self._loading = False
        self._is_loaded = False
        self.spared = spared
        self._requests_bytes = 0  # of requests that are kept until they are answered
        self._held_bytes = 0  # as the budget knows
        self._waiting_for_memory = False
        self.moved_bytes = 0
        self._holds = 0  # requests that let no other one of this connection begin
        self._muted_until = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._reading = False
        self._resuming = False
        self._writing = False
        self._gives_way = False  # of one turn of the loop it has had enough
        self._consuming = False  # frames that came together are being handled
        self._sending_soon = False
        self._handshaken = handshaken
        transport.begin(self._start_reading if handshaken is None else self._begin, self._refuse)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._handshaken is not None:
            self._handshaken(self, None)
        self._start_reading()

    def _refuse(self, reason: str) -> None:
        if self._handshaken is not None:
            self._handshaken(self, reason)
        log.info("closing %s at listener %s: %s", self.describe(), self.listener, reason)
        self.close()

    def _start_reading(self) -> None:
        self._reading = True
        self._loop.add_reader(self._transport.fd, self._on_readable)
        if self._transport.has_decrypted():
            self._loop.call_soon(self._read_decrypted)

    def _read_decrypted(self) -> None:
        """Read what the loop does not report, as it would have."""
        if self._reading and self._transport.has_decrypted():
            self._on_readable()

    def _on_readable(self) -> None:
        self._handling_errors(self._read)

    def _handling_errors(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (BlockingIOError, InterruptedError):
            return
        except BadFrame as bad:
            log.warning("closing %s: %s", self.describe(), bad)
            self.close()
        except OSError:
            self.close()  # reset, aborted, timed out: the peer is gone
        except Exception:
            log.exception("closing %s: a request broke its handler", self.describe())
            self.close()

    def _read(self) -> None:
        framer = self._framer
        received = self._transport.receive_into(framer.buffers(short=self._memory.is_full))
        if received == 0:
            self.close()
            return
        if not framer.is_under_way:
            framer.received(received)
        else:
            self.moved_bytes += received
            framer.received(received)
            if framer.is_complete:
                self._memory.has_received(self)
        self.read_at = self._loop.time()
        self._handle_frames()
        if self._reading and self._transport.has_decrypted():
            self._loop.call_soon(self._read_decrypted)

    def _handle_frames(self) -> None:
        """Handle the requests that were received as a whole.

        When too much is under way or unsent the rest is set aside: what a client pipelines costs no more than that.
        """
        framer = self._framer
        self.last_active = self.read_at
        self._gives_way = False
        self._consuming = True
        try:
            while (frame := framer.next_frame()) is not None:
                self._dispatch(frame)
                if self.closed:
                    return
                if (self._gives_way or not self._reading) and framer.has_rest:
                    framer.set_rest_aside()
                    self._pause_reading()
                    break
            if self._held_bytes or framer.is_under_way:
                self._account()
        finally:
            self._consuming = False
            self._send_now()
        if self.closed:
            return
        if framer.needs_room:
            self._wait_for_memory()
        elif not self._reading:
            self._resume_reading_if_possible()

    def _handle_rest(self) -> None:
        self._resuming = False
        if self._holds or self.closed:
            return  # since this was scheduled; a holder resumes it
        self._start_reading()
        self._handling_errors(self._handle_frames)
        self.last_active = self._loop.time()

    def _dispatch(self, frame: memoryview) -> None:
        slot = self._replies.open_slot(self)
        self._gives_way = bool(self._handle_frame(frame, self, slot))
        if self.closed:
            return
        if slot.request_bytes and not slot.filled:
            self._requests_bytes += slot.request_bytes
            self._account()
        if len(self._replies.slots) >= MAX_IN_FLIGHT:
            self._pause_reading()

    @property
    def in_flight(self) -> int:
        """How many requests have not been answered, or are behind one that has not."""
        return len(self._replies.slots)

    def hold(self) -> Callable[[], None]:
        """Handle no further request until what is returned has been called, once."""
        self._holds += 1
        self._pause_reading()
        return self._release

    def _release(self) -> None:
        self._holds -= 1
        if not self.closed:
            self._resume_reading_if_possible()

    def mute(self, seconds: float) -> None:
        """Handle no further request for so long (KIP-219); answers are sent meanwhile."""
        until = self._loop.time() + seconds
        if self.closed or until <= self._muted_until:
            return
        if self._unmuting is None:
            self.hold()
        else:
            self._unmuting.cancel()
        self._muted_until = until
        self._unmuting = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self._release()

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._transport.fd)

    def _resume_reading_if_possible(self) -> None:
        if (
            not self._reading
            and not self._holds
            and not self._waiting_for_memory
            and len(self._replies.slots) < MAX_IN_FLIGHT
            and not self._has_enough_unsent()
        ):
            if self._consuming or not self._framer.has_rest:
                self._start_reading()
            elif not self._resuming:
                self._resuming = True
                self._loop.call_soon(self._handle_rest)  # not now: this may be the end of a handler's call

    # -- memory ----------------------------------------------------------------------------------------------------

    def _may_grow(self, frame_bytes: int) -> bool:
        return self._memory.has_room(frame_bytes, self)

    def _wait_for_memory(self) -> None:
        self._waiting_for_memory = True
        self._pause_reading()
        self._memory.wait(self)

    def resume(self) -> None:
        """There is room for the request under way."""
        self._waiting_for_memory = False
        if not self.closed:
            self._resume_reading_if_possible()

    def _account(self) -> None:
        """Report what is held to the budget."""
        held = self._replies.buffered_bytes + self._requests_bytes + self._framer.room
        if held != self._held_bytes:
            self._held_bytes, before = held, self._held_bytes
            self._memory.change(self, held - before, holds=held > 0)

    def waits_for_client(self) -> bool:
        """Whether the client has something to send or to take."""
        return self._framer.is_under_way or bool(self._replies.unsent)

    def has_more_to_read(self) -> bool:
        """Whether the client has sent what was not read yet."""
        return self._transport.has_unread()

    # -- writing ---------------------------------------------------------------------------------------------------

    def slot_filled(self, slot: ReplySlot) -> None:
        """Called by a slot; sends every reply whose turn has come, together with those that follow in this turn of the
        loop: a system call for each small reply would be a third of what it costs."""
        replies = self._replies
        if self.closed or not replies.slots:
            return
        self._requests_bytes -= slot.request_bytes
        if replies.take(slot) and not self._writing:
            if self._has_enough_unsent():
                self._send()
            elif self._consuming:
                self._account()
            elif replies.slots:
                self._send_soon()
            else:
                self._send()
            return
        self._account()
        if self._has_enough_unsent():
            self._pause_reading()

    def _send_soon(self) -> None:
        """Send at the end of this turn: more requests are under way, and one commit answers many of them."""
        self._account()
        if not self._sending_soon:
            self._sending_soon = True
            self._loop.call_soon(self._send_what_was_put_off)

    def _send_what_was_put_off(self) -> None:
        self._sending_soon = False
        self._send_now()

    def _send_now(self) -> None:
        if self._replies.unsent and not self._writing and not self.closed:
            self._send()

    def _has_enough_unsent(self) -> bool:
        unsent = self._replies.unsent_bytes
        return unsent > MAX_UNSENT_BYTES or (unsent > 0 and self._memory.is_used_up_for(self))

    def _send(self) -> None:
        replies = self._replies
        unsent_before = replies.unsent_bytes
        try:
            replies.send(self._transport, self._is_in_memory)
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, EOFError) as error:
            if not isinstance(error, ConnectionError):
                log.warning("closing %s: %s", self.describe(), error)
            self.close()
            return
        if replies.unsent_bytes < unsent_before:
            self.last_active = self._loop.time()
            self.moved_bytes += unsent_before - replies.unsent_bytes
        if replies.unsent:
            if not self._writing:
                self._writing = True
                if not self._loading:
                    self._loop.add_writer(self._transport.fd, self._send)
            elif self._loading:
                self._loop.remove_writer(self._transport.fd)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._transport.fd)
        self._account()
        if self._finishes:
            self._close_if_finished()
        elif self._has_enough_unsent():
            self._pause_reading()
        else:
            self._resume_reading_if_possible()

    def _is_in_memory(self, region: FileRegion, sent: int) -> bool:
        """Whether the next part of it can be sent without waiting for the disk; if not, that part is being loaded.

        It was when the answer was made: only what a client did not take at once is looked at.
        """
        if not self._writing or self._load is None:
            return True
        if self._is_loaded:  # not to be looked at again: a machine that is short of memory would never send anything
            self._is_loaded = False
            return True
        if region.is_in_memory(sent):
            return True
        self._loading = True
        self._load(region, sent, self._loaded)
        return False

    def _loaded(self) -> None:
        self._loading = False
        if not self.closed:
            self._loop.add_writer(self._transport.fd, self._send)
            self._is_loaded = True
            self._send()

    # -- authentication ----------------------------------------------------------------------------------------------

    @property
    def principal(self) -> str:
        """The sender of its requests: the name of its login at a listener with SASL, else that of its certificate."""
        if self.authentication is None:
            return self._transport.principal
        return self.authentication.principal or ANONYMOUS

    def authenticated(self) -> None:
        """Take requests of every size from now on."""
        self._framer.max_frame_bytes = self._max_frame_bytes

    def finish(self) -> None:
        """Close as soon as everything that was asked is answered, and the answers are sent."""
        self._finishes = True
        self._loop.call_soon(self._close_if_finished)

    def _close_if_finished(self) -> None:
        if self._finishes and not self._replies.slots and not self._replies.unsent:
            self.close()

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """Whether replies wait for the client to take them."""
        return bool(self._replies.unsent)

    @property
    def idle(self) -> bool:
        """Nothing is expected of us: there is no request under way, or the client does not take the replies."""
        return not self._replies.slots or self.has_unsent

    def describe(self) -> str:
        return f"connection {self.connection_id} from {self.client_host}:{self.client_port}"

    def close(self) -> None:
        """Close the transport; replies still parked are dropped when they come."""
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._transport.fd)
        if self._writing and not self._loading:
            self._loop.remove_writer(self._transport.fd)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._transport.close()
        self._framer.give_up()
        self._memory.forget(self, self._held_bytes)
        self._held_bytes = 0
        self._closed_callback(self)
        self._replies.abandon()
