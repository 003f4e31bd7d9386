"""One client's connection: bytes in, frames to the dispatcher, replies out in the order of their requests.

The socket is read and written directly and without blocking (`loop.add_reader`), not through an asyncio transport: a
reply is handed to the kernel the moment it is ready, and buffers are never copied into a transport's queue.
See docs/adr/0001-raw-sockets.md.

    recv -> [scratch, shared by all connections] -> whole frames are handled where they lie
                                    `-> a frame that is cut off moves to a buffer of its own, which the next recv fills

A frame's bytes are valid only until the dispatcher returns; code that needs them longer copies them.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, Protocol

from ottla.log.file_region import FileRegion
from ottla.protocol.limits import MAX_BYTES, max_request_bytes
from ottla.server.memory import MemoryBudget

Buffer = bytes | bytearray | memoryview
Piece = Buffer | FileRegion

log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 256 * 1024
FIRST_FRAME_BUFFER_BYTES: Final = 128 * 1024
GROWTH_BYTES: Final = 1 << 20
"""What a buffer grows by at most: fresh memory costs the loop a fifth of a millisecond a megabyte."""
MAX_UNSENT_BYTES: Final = 1 << 20
MAX_IN_FLIGHT: Final = 256
MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
NOTHING: Final = memoryview(b"")
MAX_BUFFERS_PER_SEND: Final = 512  # IOV_MAX is 1024 on Linux


Load = Callable[[FileRegion, int, Callable[[], None]], None]
"""Bring the part of a region that is sent next, from this position, into memory; then call the last argument."""


class ReplySlot:
    """A reply's place in the line. Filled once, in any order; sent in the order of the requests."""

    __slots__ = ("_buffers", "_connection", "filled", "on_abandoned", "request_bytes")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._buffers: Sequence[Piece] = ()
        self.filled = False
        self.request_bytes = 0
        """What of the request is kept until it is answered; set by the frame's handler."""
        self.on_abandoned: Callable[[], None] | None = None
        """What to do if the connection is closed before the slot is filled."""

    def fill(self, buffers: Sequence[Piece]) -> None:
        """Hand over the frame, size prefix included; empty for a request that gets no answer (acks=0)."""
        self._buffers = buffers
        self.filled = True
        self.on_abandoned = None
        self._connection.slot_filled(self)

    def take(self) -> Sequence[Piece]:
        return self._buffers


class FrameHandler(Protocol):
    """What the connection calls for each frame: answers through the slot, now or later."""

    def __call__(self, frame: memoryview, connection: "Connection", slot: ReplySlot) -> bool | None:
        """Raise `BadFrame` to close the connection. True: the next frame is handled in another turn of the loop."""
        ...


class BadFrame(Exception):
    """The client sent bytes that no Kafka client sends; the connection is closed, and one log line gives the reason."""


def check_size(beginning: Buffer | mmap, size: int) -> None:
    """Whether a request of `size` bytes that begins like this is not too large for its API. Raises BadFrame."""
    if size > MAX_BYTES and len(beginning) > 1:
        api_key = int.from_bytes(beginning[:2], "big")
        limit = max_request_bytes(api_key)
        if limit is not None and size > limit:
            raise BadFrame(f"a request of {size} bytes to API {api_key}, which takes {limit} at most")


class Connection:
    """Owned by its listener; everything runs on the loop's thread."""

    __slots__ = (
        "_buffered_bytes",
        "_closed_callback",
        "_consuming",
        "_fd",
        "_frame",
        "_frame_filled",
        "_frame_room",
        "_frame_size",
        "_gives_way",
        "_handle_frame",
        "_held",
        "_held_bytes",
        "_holds",
        "_is_loaded",
        "_load",
        "_loading",
        "_loop",
        "_max_frame_bytes",
        "_memory",
        "_out",
        "_prefix",
        "_reading",
        "_region_sent",
        "_requests_bytes",
        "_resuming",
        "_scratch",
        "_sending_soon",
        "_slots",
        "_sock",
        "_spared",
        "_unsent_bytes",
        "_waiting_for_memory",
        "_writing",
        "client_host",
        "client_port",
        "closed",
        "connection_id",
        "last_active",
        "listener",
        "local_host",
        "local_port",
        "moved_bytes",
    )

    def __init__(
        self,
        sock: socket.socket,
        *,
        loop: asyncio.AbstractEventLoop,
        scratch: memoryview,
        handle_frame: FrameHandler,
        max_frame_bytes: int,
        memory: MemoryBudget,
        load: Load | None = None,
        spared: bool = False,
        listener: str,
        connection_id: int,
        closed: "Callable[[Connection], None]",
    ) -> None:
        """`load` brings a part of a file into memory, in a thread, for a client that was slow to take it; without it,
        the loop waits for the disk. A `spared` connection is counted in `memory`, and never waits for it."""
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._scratch = scratch
        self._handle_frame = handle_frame
        self._max_frame_bytes = max_frame_bytes
        self._closed_callback = closed
        self.listener = listener
        self.connection_id = connection_id
        self.client_host, self.client_port = sock.getpeername()[:2]
        self.local_host, self.local_port = sock.getsockname()[:2]
        self.last_active = loop.time()
        self.closed = False

        self._prefix = b""  # the first bytes of a size prefix that was cut off
        self._frame: bytearray | mmap | None = None  # a frame under way, without its size prefix
        self._frame_room = 0  # of its bytes, those that may hold memory
        self._frame_filled = 0
        self._frame_size = 0
        self._slots: deque[ReplySlot] = deque()
        self._out: deque[Piece] = deque()
        self._unsent_bytes = 0
        self._buffered_bytes = 0  # of those, what is not in files
        self._region_sent = 0
        self._memory = memory
        self._load = load
        self._loading = False
        self._is_loaded = False
        self._spared = spared
        self._requests_bytes = 0  # of requests that are kept until they are answered
        self._held_bytes = 0  # as the budget knows
        self._waiting_for_memory = False
        self.moved_bytes = 0
        self._held = NOTHING  # received, and to be handled when replies have left
        self._holds = 0  # requests that let no other one of this connection begin
        self._reading = True
        self._resuming = False
        self._writing = False
        self._gives_way = False  # of one turn of the loop it has had enough
        self._consuming = False  # frames that came together are being handled
        self._sending_soon = False
        loop.add_reader(self._fd, self._on_readable)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._handling_errors(self._read)

    def _read(self) -> None:
        if self._frame is not None:
            self._read_into_frame()
            return
        received = self._sock.recv_into(self._scratch)
        if received == 0:
            self.close()
            return
        self._consume(self._scratch[:received])

    def _consume_held(self) -> None:
        self._resuming = False
        if self._holds:
            return  # closed since this was scheduled; its holder resumes it
        held, self._held = self._held, NOTHING
        self._gives_way = False
        if not self.closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            self._handling_errors(lambda: self._consume(held))

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

    def _read_into_frame(self) -> None:
        frame = self._frame
        assert frame is not None
        with memoryview(frame) as view:
            # One call fills the frame and takes what follows it.
            received = self._sock.recvmsg_into([view[self._frame_filled : self._frame_room], self._scratch])[0]
        if received == 0:
            self.close()
            return
        self.moved_bytes += received
        self.last_active = self._loop.time()
        into_frame = min(received, self._frame_room - self._frame_filled)
        self._frame_filled += into_frame
        rest = self._scratch[: received - into_frame]
        if self._frame_filled == self._frame_room < self._frame_size:
            # The size prefix may lie: memory grows with what has really arrived.
            may_grow = self._may_grow()
            room, missing = self._frame_room, self._frame_size - self._frame_room
            more = min(missing, max(min(room, GROWTH_BYTES), len(rest)) if may_grow else len(rest))
            frame = self._with_room(frame, room + more)
            beginning, rest = rest[:more], rest[more:]
            frame[room : room + len(beginning)] = beginning
            self._frame_filled += len(beginning)
            self._account()
            if not may_grow and self._frame_filled < self._frame_size:
                self._wait_for_memory()
        if self._frame_filled < self._frame_size:
            return
        check_size(frame, self._frame_size)
        self._frame = None
        self._memory.has_received(self)
        self._dispatch(memoryview(frame))
        self._account()
        if len(rest):
            self._consume(rest)

    def _with_room(self, frame: bytearray | mmap, room: int) -> bytearray | mmap:
        """The frame, with room for so many bytes. A large one reserves addresses for its announced size, so
        that it is not copied again; memory is used only where it has been written."""
        self._frame_room = room
        if room <= len(frame):
            return frame
        if self._frame_size > GROWTH_BYTES:
            large = mmap(-1, self._frame_size, MAP_PRIVATE | MAP_ANONYMOUS)
            large[: len(frame)] = bytes(frame)
            frame = large
        else:
            assert isinstance(frame, bytearray)
            frame.extend(bytes(room - len(frame)))
        self._frame = frame
        return frame

    def _consume(self, data: memoryview) -> None:
        """Handle the whole frames in `data` (part of the scratch buffer), keep what is cut off.

        When too much is under way or unsent the rest is held back: what a client pipelines costs no more than that.
        """
        self.last_active = self._loop.time()
        self._gives_way = False
        self._consuming = True
        try:
            self._dispatch_frames(data)
        finally:
            self._consuming = False
            self._send_now()

    def _dispatch_frames(self, data: memoryview) -> None:
        position, end = 0, len(data)
        if self._prefix:
            missing = 4 - len(self._prefix)
            if end < missing:
                self._prefix += bytes(data)
                return
            size = self._checked_size(self._prefix + bytes(data[:missing]))
            position = missing
            self._prefix = b""
            if end - position < size:
                self._start_frame(size, data[position:])
                return
            self._dispatch(data[position : position + size])
            position += size
        while end - position >= 4:
            if self.closed:
                return
            if not self._reading or self._gives_way:
                self._hold_back(data[position:])
                return
            size = self._checked_size(data[position : position + 4])
            position += 4
            if end - position < size:
                self._start_frame(size, data[position:])
                return
            self._dispatch(data[position : position + size])
            position += size
        if position < end and not self.closed:
            self._prefix = bytes(data[position:])

    def _hold_back(self, rest: memoryview) -> None:
        """Handle the rest of what was received in another turn of the loop, when that is possible."""
        self._held = self.kept(rest)
        self._pause_reading()
        self._resume_reading_if_possible()

    def kept(self, data: memoryview) -> memoryview:
        """`data` as it stays when more is received: a copy, if it lies in the buffer of all connections."""
        return memoryview(bytearray(data)) if data.obj is self._scratch.obj else data

    def _checked_size(self, prefix: Buffer) -> int:
        size = int.from_bytes(prefix, "big", signed=True)
        if not 0 < size <= self._max_frame_bytes:
            raise BadFrame(
                f"a request of {size} bytes announced, of at most {self._max_frame_bytes} (socket.request.max.bytes)"
            )
        return size

    def _start_frame(self, size: int, beginning: memoryview) -> None:
        check_size(beginning, size)
        filled = len(beginning)
        self._frame_size = size
        may_grow = self._may_grow()
        frame = bytearray(max(filled, min(size, FIRST_FRAME_BUFFER_BYTES)) if may_grow else filled)
        frame[:filled] = beginning
        self._frame = frame
        self._frame_room = len(frame)
        self._frame_filled = filled
        self._account()
        if not may_grow:
            self._wait_for_memory()

    # -- memory ----------------------------------------------------------------------------------------------------

    def _may_grow(self) -> bool:
        return self._spared or self._memory.has_room(self._frame_size, self)

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
        frame = self._frame
        held = self._buffered_bytes + self._requests_bytes + (0 if frame is None else self._frame_room)
        if held != self._held_bytes:
            self._held_bytes, before = held, self._held_bytes
            self._memory.change(self, held - before, holds=held > 0)

    def waits_for_client(self) -> bool:
        """Whether the client has something to send or to take."""
        return self._frame is not None or bool(self._out)

    def has_more_to_read(self) -> bool:
        """Whether the client has sent what was not read yet."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _dispatch(self, frame: memoryview) -> None:
        slot = ReplySlot(self)
        self._slots.append(slot)
        self._gives_way = bool(self._handle_frame(frame, self, slot))
        if slot.request_bytes and not slot.filled:
            self._requests_bytes += slot.request_bytes
            self._account()
        if len(self._slots) >= MAX_IN_FLIGHT:
            self._pause_reading()

    @property
    def in_flight(self) -> int:
        """How many requests have not been answered, or are behind one that has not."""
        return len(self._slots)

    def hold(self) -> Callable[[], None]:
        """Handle no further request until what is returned has been called, once."""
        self._holds += 1
        self._pause_reading()
        return self._release

    def _release(self) -> None:
        self._holds -= 1
        if not self.closed:
            self._resume_reading_if_possible()

    # -- writing ---------------------------------------------------------------------------------------------------

    def slot_filled(self, slot: ReplySlot) -> None:
        """Called by a slot; sends every reply whose turn has come, together with those that follow in this turn of the
        loop: a system call for each small reply would be a third of what it costs."""
        slots = self._slots
        if self.closed or not slots:
            return
        for piece in slot.take():
            size = len(piece)
            self._unsent_bytes += size
            if not isinstance(piece, FileRegion):
                self._buffered_bytes += size
        self._requests_bytes -= slot.request_bytes
        if slots[0] is slot:
            out = self._out
            while slots and slots[0].filled:
                # An empty piece would never count as sent.
                out.extend(piece for piece in slots.popleft().take() if len(piece))
            if not self._writing:
                if self._has_enough_unsent():
                    self._send()
                elif self._consuming:
                    self._account()
                elif slots:
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
        if self._out and not self._writing and not self.closed:
            self._send()

    def _has_enough_unsent(self) -> bool:
        return self._unsent_bytes > MAX_UNSENT_BYTES or (
            self._unsent_bytes > 0 and not self._spared and self._memory.is_used_up
        )

    def _send(self) -> None:
        out = self._out
        unsent_before = self._unsent_bytes
        try:
            while out:
                if isinstance(out[0], FileRegion):
                    if not self._is_in_memory(out[0]):
                        break
                    self._send_region(out[0])
                else:
                    self._send_buffers()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, EOFError) as error:
            if not isinstance(error, ConnectionError):
                log.warning("closing %s: %s", self.describe(), error)
            self.close()
            return
        if self._unsent_bytes < unsent_before:
            self.last_active = self._loop.time()
            self.moved_bytes += unsent_before - self._unsent_bytes
        if out:
            if not self._writing:
                self._writing = True
                if not self._loading:
                    self._loop.add_writer(self._fd, self._send)
            elif self._loading:
                self._loop.remove_writer(self._fd)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._account()
        if self._has_enough_unsent():
            self._pause_reading()
        else:
            self._resume_reading_if_possible()

    def _send_buffers(self) -> None:
        out = self._out
        batch: list[Buffer] = []
        flags = 0
        for piece in islice(out, MAX_BUFFERS_PER_SEND):
            if isinstance(piece, FileRegion):
                flags = MSG_MORE
                break
            batch.append(piece)
        sent = self._sock.sendmsg(batch, (), flags)
        self._unsent_bytes -= sent
        self._buffered_bytes -= sent
        for piece in batch:
            size = len(piece)
            if sent < size:
                out[0] = memoryview(piece)[sent:]
                return
            out.popleft()
            sent -= size

    def _is_in_memory(self, region: FileRegion) -> bool:
        """Whether the next part of it can be sent without waiting for the disk; if not, that part is being loaded.

        It was when the answer was made: only what a client did not take at once is looked at.
        """
        if not self._writing or self._load is None:
            return True
        if self._is_loaded:  # not to be looked at again: a machine that is short of memory would never send anything
            self._is_loaded = False
            return True
        if region.is_in_memory(self._region_sent):
            return True
        self._loading = True
        self._load(region, self._region_sent, self._loaded)
        return False

    def _loaded(self) -> None:
        self._loading = False
        if not self.closed:
            self._loop.add_writer(self._fd, self._send)
            self._is_loaded = True
            self._send()

    def _send_region(self, region: FileRegion) -> None:
        sent = region.send_to(self._fd, self._region_sent)
        self._unsent_bytes -= sent
        self._region_sent += sent
        if self._region_sent == len(region):
            self._out.popleft()
            self._region_sent = 0

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading_if_possible(self) -> None:
        if (
            not self._reading
            and not self._holds
            and not self._waiting_for_memory
            and len(self._slots) < MAX_IN_FLIGHT
            and not self._has_enough_unsent()
        ):
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._held:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)
        elif not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._consume_held)  # not now: this may be the end of a handler's call

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing is expected of us: there is no request under way, or the client does not take the replies."""
        return not self._slots or bool(self._out)

    def describe(self) -> str:
        return f"connection {self.connection_id} from {self.client_host}:{self.client_port}"

    def close(self) -> None:
        """Close the socket; replies still parked are dropped when they come."""
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing and not self._loading:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        slots, self._slots = self._slots, deque()
        self._out.clear()
        self._frame = None
        self._held = NOTHING
        self._memory.forget(self, self._held_bytes)
        self._held_bytes = 0
        self._closed_callback(self)
        for slot in slots:
            if slot.on_abandoned is not None:
                slot.on_abandoned()
