"""One connection's conversation with a broker, without I/O: bytes in, answers out. PURE.

    driver                      Session                                   broker
      send(request, version) --> encodes, numbers -----> outgoing() ---------->
      <-- Answer --------------- decodes, correlates <-- buffer(), received(n) <--

    NEGOTIATING --(steps of the handshake are answered)--> READY --(close, or bytes that are no answer)--> CLOSED
         ^---------------------(a login is renewed)----------'

A broker answers the requests of a connection in their order, so each complete frame belongs to the oldest request that
waits, and must carry its number. A frame is a size (int32) and so many bytes; both are read straight into `buffer`, so
nothing is copied. Everything raised is a `ClientError`, and closes the session: what follows on the connection could
not be attributed.

Source: the protocol guide's "Protocol Primitives" and KIP-511.
"""

import struct
from collections import deque
from collections.abc import Callable, Generator, Mapping
from enum import Enum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, NamedTuple, cast

from ottla.client.errors import ClientError, NotABroker, UnsupportedRequest
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey, response_class
from ottla.protocol.errors import ProtocolError, UnencodableMessage, UnsupportedVersion
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Message

LARGEST_FRAME_BYTES: Final = 1 << 30
SMALL_FRAME_BYTES: Final = 64 << 10
LARGE_FRAME_BYTES: Final = 4 << 20
"""A larger frame takes memory only as its bytes arrive: a TLS alert, read as a size, announces 352 MB."""
API_VERSIONS_FALLBACK: Final = 0
"""In this version a broker answers an ApiVersions request of a version that it does not know."""
_SIZE: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")
_AFTER_CORRELATION: Final = 4

Memory = Callable[[int], memoryview]
"""Memory for a frame of so many bytes."""
Served = Mapping[int, tuple[int, int]]
"""The lowest and highest version of each API that a broker serves, by API key."""
Handshake = Generator[tuple[Message, int], Any, Served | None]
"""The requests, with their versions, that come before all others. It is sent the answers, and returns what the broker
serves, None if that was not asked. Raises `ClientError`."""


class State(Enum):
    """What a session may do."""

    NEGOTIATING = "negotiating"
    """The steps of the handshake are under way; requests have to wait."""
    READY = "ready"
    CLOSED = "closed"


class Answer(NamedTuple):
    """The answer to the oldest request that waited."""

    correlation_id: int
    message: Any


class _Waiting(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


def fresh_memory(size: int) -> memoryview:
    """New memory for each frame, so that answers may be kept."""
    return memoryview(_zeros(size))


def _zeros(size: int) -> bytearray | mmap:
    return bytearray(size) if size <= LARGE_FRAME_BYTES else mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)


class ReusedMemory:
    """One piece of memory for all frames of a connection: bytes of an answer are overwritten by the next one.

    It grows as needed, and shrinks when a frame needs less than a quarter of it and of `usual_bytes`.
    """

    def __init__(self, usual_bytes: int) -> None:
        self._usual_bytes = usual_bytes
        self._memory: bytearray | mmap = bytearray()

    def __call__(self, size: int) -> memoryview:
        """The first `size` bytes of it."""
        if len(self._memory) < size or len(self._memory) > 4 * max(size, self._usual_bytes):
            self._memory = _zeros(max(size, SMALL_FRAME_BYTES))
        return memoryview(self._memory)[:size]


class Session:
    """Requests and answers of one connection. It belongs to its driver, and is not thread-safe."""

    def __init__(
        self,
        peer: str,
        client_id: str,
        *,
        handshake: Handshake | None = None,
        memory: Memory = fresh_memory,
        largest_frame_bytes: int = LARGEST_FRAME_BYTES,
    ) -> None:
        """`peer` names the broker in errors. `largest_frame_bytes`: a larger answer is refused before it is read."""
        self._peer = peer
        self._client_id = client_id
        self._memory = memory
        self._largest_frame_bytes = largest_frame_bytes
        self._last_id = 0
        self._waiting: deque[_Waiting] = deque()
        self._outgoing: list[Buffer] = []
        self._size = memoryview(bytearray(_SIZE.size))
        self._target = self._size
        self._filled = 0
        self._served: Served | None = None
        self._handshake = handshake
        self.state = State.READY if handshake is None else State.NEGOTIATING
        if handshake is not None:
            self._continue_handshake(None)

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def served(self) -> Served:
        """What the broker serves, as the handshake found out; nothing without one."""
        return self._served or {}

    def version(self, api_key: int, newest: int | None = None) -> int:
        """The newest version of an API that the broker serves and this program declares, not above `newest`.

        Raises `UnsupportedRequest` if there is none. The handshake must have asked for versions.
        """
        assert self._served is not None, "the handshake did not ask for versions"
        known = response_class(api_key).VERSIONS
        lowest, highest = self._served.get(api_key, (0, -1))
        version = min(highest, known[-1] if newest is None else newest)
        if version < max(lowest, known[0]):
            name = ApiKey(api_key).name.title().replace("_", "")
            raise UnsupportedRequest(f"the broker at {self._peer} does not serve {name} in a version known here")
        return version

    def send(self, request: Message, version: int) -> int:
        """Add a request to `outgoing`; returns its correlation id. Raises `UnsupportedRequest`, and sends nothing."""
        assert self.state is State.READY, f"a session that is {self.state.value} sends no requests"
        return self._send(request, version)

    def _send(self, request: Message, version: int) -> int:
        correlation_id = self._last_id + 1
        try:
            pieces = encode_request(request, version, correlation_id, self._client_id)
        except (UnencodableMessage, UnsupportedVersion) as error:
            raise UnsupportedRequest(f"the broker at {self._peer} is too old for this request: {error}") from error
        assert request.API_KEY is not None
        self._last_id = correlation_id
        self._waiting.append(_Waiting(correlation_id, request.API_KEY, version))
        self._outgoing += cast("list[Buffer]", pieces)  # no file region in a request
        return correlation_id

    def renew(self, handshake: Handshake) -> None:
        """Go through another handshake while no request waits. Raises what it raises."""
        assert self.state is State.READY
        assert not self._waiting
        self._handshake = handshake
        self.state = State.NEGOTIATING
        self._continue_handshake(None)

    def outgoing(self) -> list[Buffer]:
        """The bytes to be sent next, in pieces; each is given out once."""
        pieces, self._outgoing = self._outgoing, []
        return pieces

    # -- answers -------------------------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """Where the next bytes from the broker go; never empty. `received` takes their number."""
        return self._target[self._filled :]

    def received(self, count: int) -> Answer | None:
        """Take in `count` bytes that were read into `buffer`; returns the answer that they complete, if they do.

        Answers within the handshake are not returned, but may add to `outgoing`. Raises `NotABroker` for bytes that
        are no answer, and what the handshake raises.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        self._filled = 0
        if self._target is self._size:
            self._target = self._memory(self._checked_size())
            return None
        frame, self._target = self._target, self._size
        answer = self._decoded(frame)
        if self.state is State.NEGOTIATING:
            self._continue_handshake(answer.message)
            return None
        return answer

    def close(self) -> None:
        """Forget what waits; the connection is of no further use."""
        self.state = State.CLOSED
        self._waiting.clear()
        self._outgoing.clear()

    def _checked_size(self) -> int:
        (size,) = _SIZE.unpack(self._size)
        if not self._waiting:
            raise self._foreign("sends an answer to no request")
        if not _AFTER_CORRELATION <= size <= self._largest_frame_bytes:
            raise self._foreign(f"does not answer as a Kafka broker: it announces an answer of {size} bytes")
        return int(size)

    def _decoded(self, frame: memoryview) -> Answer:
        expected = self._waiting.popleft()
        version = expected.version
        if expected.api_key == ApiKey.API_VERSIONS and _is_fallback(frame):
            version = API_VERSIONS_FALLBACK
        try:
            answer = Answer(*decode_response(expected.api_key, version, frame))
        except ProtocolError as error:
            raise self._foreign(f"does not answer as a Kafka broker: its answer does not parse: {error}") from error
        if answer.correlation_id != expected.correlation_id:
            raise self._foreign("answers another request than the one that was sent")
        return answer

    def _foreign(self, what: str) -> NotABroker:
        self.close()
        return NotABroker(f"{self._peer} {what}")

    # -- handshake -----------------------------------------------------------------------------------------------------

    def _continue_handshake(self, answer: Any) -> None:
        assert self._handshake is not None
        try:
            self._send(*self._handshake.send(answer))
        except StopIteration as finished:
            self._served = finished.value or self._served
            self.state = State.READY
        except ClientError as error:
            self.close()
            raise type(error)(f"{self._peer} {error}") from error


def _is_fallback(frame: memoryview) -> bool:
    """Whether an answer to ApiVersions is in version 0, whatever was asked (KIP-511)."""
    return len(frame) >= _AFTER_CORRELATION + _ERROR.size and (
        _ERROR.unpack_from(frame, _AFTER_CORRELATION)[0] == ErrorCode.UNSUPPORTED_VERSION
    )
