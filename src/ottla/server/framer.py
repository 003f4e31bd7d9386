"""From received bytes to whole requests, without I/O: the transport fills `buffers`, `next_frame` takes requests out.

    received -> [scratch, shared by all connections] -> whole frames are handled where they lie
                                        `-> a frame that is cut off moves to a buffer of its own, filled next

A frame lies in the scratch buffer only until more is received, from any connection; `kept` gives a copy that stays.
"""

import mmap as memory_map
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from ottla.protocol.limits import MAX_BYTES, max_request_bytes
from ottla.server.transport import Buffer

SCRATCH_BYTES: Final = 256 * 1024
SHORT_BYTES: Final = 16 * 1024
"""What is read at once while memory is used up: thousands of connections may each have to keep it."""
FIRST_FRAME_BUFFER_BYTES: Final = 128 * 1024
GROWTH_BYTES: Final = 1 << 20
"""What a buffer grows by at most: fresh memory costs the loop a fifth of a millisecond a megabyte."""
NO_HUGE_PAGES: Final[int | None] = getattr(memory_map, "MADV_NOHUGEPAGE", None)
"""On Linux. Where the system uses huge pages by default, the beginning of a large frame would take 2 MB."""
NOTHING: Final = memoryview(b"")
CLIENT_HELLO: Final = b"\x16\x03"
"""The first bytes of a handshake of TLS; read as a size, they are more than 350 MB."""


class BadFrame(Exception):
    """The client sent bytes that no Kafka client sends; the connection is closed, and one log line gives the reason."""


def check_size(beginning: Buffer | mmap, size: int) -> None:
    """Whether a request of `size` bytes that begins like this is not too large for its API. Raises BadFrame."""
    if size > MAX_BYTES and len(beginning) > 1:
        api_key = int.from_bytes(beginning[:2], "big")
        limit = max_request_bytes(api_key)
        if limit is not None and size > limit:
            raise BadFrame(f"a request of {size} bytes to API {api_key}, which takes {limit} at most")


def _never(_: int) -> bool:
    return False


class Framer:
    """The requests of one connection, each preceded by its size in four bytes."""

    __slots__ = (
        "_filled",
        "_frame",
        "_may_grow",
        "_position",
        "_prefix",
        "_received",
        "_scratch",
        "_scratch_alone",
        "_short_alone",
        "_size",
        "max_frame_bytes",
        "needs_room",
        "room",
    )

    def __init__(self, scratch: memoryview, *, max_frame_bytes: int, may_grow: Callable[[int], bool]) -> None:
        """`max_frame_bytes`: socket.request.max.bytes. `may_grow`: whether there is memory for a request of so many
        bytes."""
        self._scratch = scratch
        self._scratch_alone = (scratch,)
        self._short_alone = (scratch[:SHORT_BYTES],)
        self.max_frame_bytes = max_frame_bytes
        self._may_grow = may_grow
        self._received = NOTHING  # and not taken out yet, from _position on
        self._position = 0
        self._prefix = b""  # the first bytes of a size prefix that was cut off
        self._frame: bytearray | mmap | None = None  # a frame that was cut off, without its size prefix
        self._size = 0
        self._filled = 0
        self.room = 0
        """The bytes of memory that a frame under way may hold."""
        self.needs_room = False
        """Whether the frame under way may not grow: nothing more is to be received until there is memory."""

    @property
    def is_under_way(self) -> bool:
        """Whether the beginning of a frame has come, in more than one piece or too large for the scratch buffer."""
        return self._frame is not None

    @property
    def is_complete(self) -> bool:
        """Whether the frame under way has come as a whole, and `next_frame` gives it."""
        return self._frame is not None and self._filled == self._size

    @property
    def has_rest(self) -> bool:
        """Whether received bytes have not been looked at yet."""
        return self._position < len(self._received)

    def buffers(self, *, short: bool = False) -> tuple[memoryview, ...]:
        """Where to receive: what is missing of a frame under way, as far as it has room, and what follows it. The
        buffers are not to be kept. `short`: as little as small requests need, since there is no memory to keep more."""
        frame = self._frame
        scratch = self._short_alone if short else self._scratch_alone
        return scratch if frame is None else (memoryview(frame)[self._filled : self.room], *scratch)

    def received(self, count: int) -> None:
        """So many bytes were received into `buffers`. Raises BadFrame."""
        frame = self._frame
        self._position = 0
        if frame is None:
            self._received = self._scratch[:count]
            return
        into_frame = min(count, self.room - self._filled)
        self._filled += into_frame
        rest = self._scratch[: count - into_frame]
        if self._filled == self.room < self._size:
            # The size prefix may lie: memory grows with what has really arrived.
            may_grow = self._may_grow(self._size)
            filled, missing = self._filled, self._size - self._filled
            more = min(missing, max(min(filled, GROWTH_BYTES), len(rest)) if may_grow else len(rest))
            frame = self._with_room(frame, filled + more)
            beginning, rest = rest[:more], rest[more:]
            frame[filled : filled + len(beginning)] = beginning
            self._filled += len(beginning)
            self.needs_room = not may_grow and self._filled < self._size
        self._received = rest
        if self._filled == self._size:
            check_size(frame, self._size)

    def next_frame(self) -> memoryview | None:
        """The next whole frame, or None if it is not complete: then all that was received is kept. Raises BadFrame."""
        frame = self._frame
        if frame is not None:
            if self._filled < self._size:
                return None
            self._frame = None
            self.room = 0
            return memoryview(frame)
        data, start = self._received, self._position
        if start == len(data):
            self._received, self._position = NOTHING, 0  # a copy that was set aside need not outlive its last frame
            return None
        prefix: Buffer
        if self._prefix or len(data) - start < 4:
            missing = 4 - len(self._prefix)
            prefix = self._prefix + bytes(data[start : start + missing])
            if len(prefix) < 4:
                self._prefix = prefix
                self._received, self._position = NOTHING, 0
                return None
            self._prefix = b""
            start += missing
        else:
            prefix = data[start : start + 4]
            start += 4
        size = int.from_bytes(prefix, "big", signed=True)
        if not 0 < size <= self.max_frame_bytes:
            if prefix[:2] == CLIENT_HELLO:
                raise BadFrame("the client speaks TLS, and this listener does not (listener.security.protocol.map)")
            raise BadFrame(
                f"a request of {size} bytes announced, of at most {self.max_frame_bytes} (socket.request.max.bytes)"
            )
        end = start + size
        if end > len(data):
            self._received, self._position = NOTHING, 0
            self._begin_frame(size, data[start:])
            return None
        self._position = end
        return data[start:end]

    def set_rest_aside(self) -> None:
        """Keep what was received and not looked at, while others use the scratch buffer."""
        self._received = self.kept(self._received[self._position :])
        self._position = 0

    def kept(self, data: memoryview) -> memoryview:
        """`data` as it stays when more is received: a copy, if it lies in the buffer of all connections."""
        return memoryview(bytearray(data)) if data.obj is self._scratch.obj else data

    def give_up(self) -> None:
        """Let go of everything, the connection included: it is closed."""
        self._may_grow = _never
        self._frame = None
        self.room = 0
        self._received, self._position = NOTHING, 0

    def _begin_frame(self, size: int, beginning: memoryview) -> None:
        check_size(beginning, size)
        filled = len(beginning)
        may_grow = self._may_grow(size)
        frame = bytearray(max(filled, min(size, FIRST_FRAME_BUFFER_BYTES)) if may_grow else filled)
        frame[:filled] = beginning
        self._frame, self._size, self._filled, self.room = frame, size, filled, len(frame)
        self.needs_room = not may_grow

    def _with_room(self, frame: bytearray | mmap, room: int) -> bytearray | mmap:
        """The frame, with room for so many bytes. A large one reserves addresses for its announced size, so
        that it is not copied again; memory is used only where it has been written."""
        self.room = room
        if room <= len(frame):
            return frame
        if self._size > GROWTH_BYTES:
            large = mmap(-1, self._size, MAP_PRIVATE | MAP_ANONYMOUS)
            if NO_HUGE_PAGES is not None:
                large.madvise(NO_HUGE_PAGES)
            large[: len(frame)] = bytes(frame)
            frame = large
        else:
            assert isinstance(frame, bytearray)
            frame.extend(bytes(room - len(frame)))
        self._frame = frame
        return frame
