"""asyncio's transport over a simulated connection, so that asyncio clients run in the simulation unchanged."""

import asyncio
from collections.abc import Iterable
from typing import Final

from ottla.testing.simulation.network import SimSocket

READ_BYTES: Final = 1 << 16
HIGH_WATER_BYTES: Final = 1 << 16
"""The protocol is asked to pause once more than this waits to be sent."""


class SimTransport(asyncio.Transport):
    """One connection, with flow control in both directions. Owns the socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: SimSocket, protocol: asyncio.BaseProtocol) -> None:
        peer, local = sock.getpeername(), sock.getsockname()
        super().__init__({"socket": sock, "peername": peer, "sockname": local})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_closing = False
        self._is_reading = True
        self._is_paused_by_us = False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._resume)

    # -- reading -------------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        """Whether the protocol gets what arrives."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Leave what arrives in the connection."""
        self._is_reading = False
        self._loop.remove_reader(self._sock)

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        self._is_reading = True
        self._resume()

    def _resume(self) -> None:
        if self.is_reading():
            self._loop.add_reader(self._sock, self._read)

    def _read(self) -> None:
        assert isinstance(self._protocol, asyncio.Protocol)
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._protocol.data_received(data)
            return
        self._loop.remove_reader(self._sock)
        if not self._protocol.eof_received():
            self.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send now what the connection takes, and the rest when it takes more."""
        if self._is_closing:
            return
        self._unsent += data
        self._send()
        if len(self._unsent) > HIGH_WATER_BYTES and not self._is_paused_by_us:
            self._is_paused_by_us = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """The same for several parts."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """False: a connection is closed as a whole."""
        return False

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._unsent)

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(bytes(self._unsent))]
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._send)
            return
        except OSError as error:
            self._end(error)
            return
        self._loop.remove_writer(self._sock)
        if self._is_paused_by_us:
            self._is_paused_by_us = False
            self._protocol.resume_writing()
        if self._is_closing:
            self._end(None)

    # -- the end -------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once everything is sent."""
        return self._is_closing

    def close(self) -> None:
        """Close once everything is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.remove_reader(self._sock)
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        """Close now."""
        self._end(None)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets what arrives."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what arrives from now on to another protocol."""
        self._protocol = protocol

    def _end(self, error: OSError | None) -> None:
        if self._sock.fileno() == -1:
            return
        self._is_closing = True
        self._unsent.clear()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
