"""A network of hosts in one process: TCP connections that are slow, stall, break, and never lose their order.

    network = SimNetwork(loop)
    network.host("b1").listen(9092)
    sock = await network.host("c1").connect("b1", 9092)

It reproduces every fault of a bad network that a program can see through TCP: delays, bytes split differently than
they were sent, a connection that is silent for seconds (lost packets are sent again; a partition holds everything back
until it heals), a reset after the peer has ended, a connect that is refused or never answered. TCP hides duplicated and
reordered packets from programs. Duplicate requests come from senders that retry on a new connection, which resets make
happen often enough.
"""

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from ottla.testing.simulation.loop import NOBODY, SimLoop

WINDOW_BYTES: Final = 1 << 20
"""Sent and not yet taken by the other side, at most."""
RETRANSMIT_S: Final = 0.2
CONNECT_TIMEOUT_S: Final = 10.0
ADDRESS_IN_USE: Final = "address in use"


@dataclass(slots=True)
class Weather:
    """How the network behaves. Seconds and probabilities; changes apply to what is sent from then on."""

    mean_delay_seconds: float = 0.0005
    loss: float = 0.0
    """Probability that a segment is lost: it arrives after `RETRANSMIT_S`, twice that, and so on."""
    cut: float = 0.2
    """That a segment is cut in two on its way."""


class _Direction:
    """Bytes on their way from one end of a connection to the other."""

    def __init__(self) -> None:
        self.under_way: deque[bytes | None] = deque()
        self.arrived: deque[bytes] = deque()
        self.bytes_there = 0
        self.bytes_under_way = 0
        self.last_arrival = 0.0
        self.ended = False
        """The sender has closed, and everything before that has arrived."""
        self.held: deque[bytes | None] = deque()
        """Sent while the hosts could not reach one another; None is the end."""


class _End(NamedTuple):
    """Where a connection ends."""

    host: "SimHost"
    port: int

    @property
    def address(self) -> tuple[str, int]:
        """What programs see of it."""
        return self.host.address, self.port


class SimSocket:
    """One end of a connection, with what is used of `socket.socket`; non-blocking."""

    def __init__(self, network: "SimNetwork", local: "_End", peer: "_End") -> None:
        self._network = network
        self._local, self._peer = local, peer
        self._incoming = _Direction()
        self._number = network.loop.adopt(self)
        self._is_reset = False
        self._is_closed = False
        self.other: SimSocket | None = None

    # -- for the loop and the network ----------------------------------------------------------------------------------

    def is_readable(self) -> bool:
        return bool(self._incoming.arrived) or self._incoming.ended or self._is_reset

    def is_writable(self) -> bool:
        return self._is_reset or self._room() > 0

    def arrive(self) -> None:
        """The next of what the other end has sent is here."""
        data = self._incoming.under_way.popleft()
        if self._is_closed:
            if data is not None and self.other is not None:
                self._network.reset_later(self.other)
            return
        if data is None:
            self._incoming.ended = True
        else:
            self._incoming.bytes_under_way -= len(data)
            self._incoming.bytes_there += len(data)
            self._incoming.arrived.append(data)
        self._network.loop.poll(self._number)

    def reset(self) -> None:
        """The other end is gone, or does not know this connection any more."""
        self._is_reset = True
        self._incoming.arrived.clear()
        self._network.loop.poll(self._number)

    def vanish(self) -> None:
        """The host of this end has stopped: nothing is sent any more, not even the end."""
        self._is_closed = True
        self._network.loop.drop(self._number)

    @property
    def is_open(self) -> bool:
        return not (self._is_closed or self._is_reset)

    @property
    def incoming(self) -> _Direction:
        return self._incoming

    @property
    def host(self) -> str:
        """The name of the host of this end."""
        return self._local.host.name

    @property
    def peer_host(self) -> str:
        """The name of the host of the other end."""
        return self._peer.host.name

    # -- for programs --------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return -1 if self._is_closed else self._number

    def getpeername(self) -> tuple[str, int]:
        return self._peer.address

    def getsockname(self) -> tuple[str, int]:
        return self._local.address

    def setsockopt(self, *_: object) -> None:
        """All options are alike here."""

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def recv(self, size: int) -> bytes:
        """At most `size` bytes that have arrived; `b""` at the end, BlockingIOError if there are none yet."""
        self._check()
        incoming = self._incoming
        if not incoming.arrived:
            if incoming.ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing has arrived")
        data = incoming.arrived.popleft()
        if len(data) > size:
            incoming.arrived.appendleft(data[size:])
            data = data[:size]
        incoming.bytes_there -= len(data)
        if self.other is not None:
            self._network.loop.poll(self.other._number)
        return data

    def recv_into(self, buffer: memoryview | bytearray) -> int:
        """As `recv`, into a buffer; the number of bytes."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recvmsg_into(self, buffers: Sequence[memoryview]) -> tuple[int, list[object], int, tuple[str, int]]:
        """As `recv`, into several buffers in turn."""
        total = 0
        for buffer in buffers:
            filled = 0
            while filled < len(buffer) and (not total or self._incoming.arrived):
                received = self.recv_into(memoryview(buffer)[filled:])
                if not received:
                    return total, [], 0, self.getpeername()
                filled += received
                total += received
        return total, [], 0, self.getpeername()

    def send(self, data: bytes | bytearray | memoryview, _flags: int = 0) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: Iterable[bytes | bytearray | memoryview], _extra: object = (), _flags: int = 0) -> int:
        """Send as much as the window takes; BlockingIOError if it is full. The number of bytes."""
        self._check()
        room = self._room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        data = b"".join(buffers)[:room]
        if data:
            self._network.send(self, data)
        return len(data)

    def shutdown(self, how: int) -> None:
        if how in (socket.SHUT_WR, socket.SHUT_RDWR) and not self._is_reset:
            self._network.send(self, None)

    def close(self) -> None:
        """Close both directions; the peer reads to the end of what was sent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.loop.drop(self._number)
        if not self._is_reset:
            self._network.send(self, None)

    def _check(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the socket is closed")
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, f"{self.peer_host}:{self._peer.port} has reset the connection")

    def _room(self) -> int:
        if self.other is None:
            return WINDOW_BYTES
        there = self.other.incoming
        return WINDOW_BYTES - there.bytes_there - there.bytes_under_way


class SimListeningSocket:
    """A listening socket, with what is used of `socket.socket`."""

    def __init__(self, host: "SimHost", port: int) -> None:
        self._host = host
        self._port = port
        self._waiting: deque[SimSocket] = deque()
        self._number = host.network.loop.adopt(self)

    def is_readable(self) -> bool:
        return bool(self._waiting)

    def is_writable(self) -> bool:
        return False

    def offer(self, sock: SimSocket) -> None:
        """Add a connection that waits to be accepted."""
        self._waiting.append(sock)
        self._host.network.loop.poll(self._number)

    def listen(self, _backlog: int) -> None:
        self._host.listening[self._port] = self

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        """The oldest waiting connection and its peer; BlockingIOError if there is none."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, "no connection is waiting")
        sock = self._waiting.popleft()
        return sock, sock.getpeername()

    def fileno(self) -> int:
        return self._number

    def getsockname(self) -> tuple[str, int]:
        return self._host.address, self._port

    def close(self) -> None:
        """Stop listening; connections that wait are reset."""
        if self._host.listening.get(self._port) is self:
            del self._host.listening[self._port]
        self._host.network.loop.drop(self._number)
        while self._waiting:
            self._waiting.popleft().close()


class SimHost:
    """One machine on the network."""

    def __init__(self, network: "SimNetwork", name: str, number: int) -> None:
        self.network = network
        self.name = name
        self.address = f"10.0.{number // 256}.{number % 256}"
        self.listening: dict[int, SimListeningSocket] = {}
        self.sockets: list[SimSocket] = []
        self._next_port = 32_768

    def listen(self, port: int) -> SimListeningSocket:
        """Raises OSError (EADDRINUSE)."""
        if port in self.listening:
            raise OSError(errno.EADDRINUSE, f"{self.name}:{port}: {ADDRESS_IN_USE}")
        return SimListeningSocket(self, port)

    async def connect(self, name: str, port: int) -> SimSocket:
        """Raises ConnectionRefusedError, or TimeoutError when the host cannot be reached."""
        network = self.network
        loop = network.loop
        deadline = loop.time() + CONNECT_TIMEOUT_S
        await asyncio.sleep(2 * network.delay())
        while not (network.reaches(self.name, name) and network.reaches(name, self.name)):
            if loop.time() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"{name}:{port} cannot be reached from {self.name}")
            await asyncio.sleep(RETRANSMIT_S)
        listening = network.host(name).listening.get(port)
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens at {name}:{port}")
        self._next_port += 1
        here, there = _End(self, self._next_port), _End(network.host(name), port)
        mine, theirs = SimSocket(network, here, there), SimSocket(network, there, here)
        mine.other, theirs.other = theirs, mine
        for host, sock in ((self, mine), (network.host(name), theirs)):
            host.sockets = [one for one in host.sockets if one.is_open]
            host.sockets.append(sock)
        listening.offer(theirs)
        return mine

    def stop(self) -> None:
        """The machine loses its power, or its process is killed: peers notice when they next send."""
        for listening in list(self.listening.values()):
            listening.close()
        for sock in self.sockets:
            if sock.is_open and sock.other is not None:
                self.network.reset_later(sock.other)
            sock.vanish()
        self.sockets.clear()


class SimNetwork:
    """Hosts by name, made when first asked for."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.weather = Weather()
        self._hosts: dict[str, SimHost] = {}
        self.fingerprint = 0
        """Hash of everything that was sent, and when: runs that differ in it have diverged."""
        self._cut_off: set[tuple[str, str]] = set()
        """Sender and receiver."""
        self._late_resets: list[SimSocket] = []

    def host(self, name: str) -> SimHost:
        """The host of this name, created when it is first used."""
        if name not in self._hosts:
            self._hosts[name] = SimHost(self, name, len(self._hosts) + 1)
        return self._hosts[name]

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether what one host sends comes to another; the other direction is another question."""
        return (sender, receiver) not in self._cut_off

    def cut(self, one: Iterable[str], other: Iterable[str], *, one_way: bool = False) -> None:
        """Nothing passes between the two sides until `heal`; or, `one_way`, nothing from the first to the second."""
        ones, others = list(one), list(other)
        self._cut_off |= {(a, b) for a in ones for b in others}
        if not one_way:
            self._cut_off |= {(b, a) for a in ones for b in others}

    def break_connections(self, share: float) -> int:
        """Break so many of the open connections (0 to 1), at both ends; how many that were."""
        broken = 0
        for host in self._hosts.values():
            for sock in host.sockets:
                if sock.is_open and sock.other is not None and sock.other.is_open and self.loop.random.random() < share:
                    sock.reset()
                    sock.other.reset()
                    broken += 1
        return broken

    def heal(self) -> None:
        """Everything reaches everything; what was held back is delivered."""
        self._cut_off.clear()
        late, self._late_resets = self._late_resets, []
        for sock in late:
            self.reset_later(sock)
        for host in list(self._hosts.values()):
            for sock in host.sockets:
                held, sock.incoming.held = sock.incoming.held, deque()
                for data in held:
                    self._deliver(sock, data)

    def delay(self) -> float:
        """Seconds that the next segment takes, retransmissions included."""
        random, weather = self.loop.random, self.weather
        seconds = random.expovariate(1 / weather.mean_delay_seconds)
        wait = RETRANSMIT_S
        while weather.loss and random.random() < weather.loss:
            seconds += wait
            wait *= 2
        return seconds

    # -- for sockets ---------------------------------------------------------------------------------------------------

    def send(self, sender: SimSocket, data: bytes | None) -> None:
        """Carry it to the other end; None is the sender's end."""
        receiver = sender.other
        if receiver is None:
            return
        if data is None:
            self._carry(sender, receiver, None)
            return
        self.fingerprint = crc32(data, crc32(struct.pack("<d", self.loop.time()), self.fingerprint))
        receiver.incoming.bytes_under_way += len(data)
        random = self.loop.random
        while len(data) > 1 and random.random() < self.weather.cut:
            at = random.randrange(1, len(data))
            self._carry(sender, receiver, data[:at])
            data = data[at:]
        self._carry(sender, receiver, data)

    def reset_later(self, sock: SimSocket) -> None:
        """The end of a connection learns that the other does not know it any more."""
        if self.reaches(sock.peer_host, sock.host):
            self.loop.call_later(self.delay(), sock.reset, context=NOBODY)
        else:
            self._late_resets.append(sock)

    def _carry(self, sender: SimSocket, receiver: SimSocket, data: bytes | None) -> None:
        if receiver.incoming.held or not self.reaches(sender.host, receiver.host):
            receiver.incoming.held.append(data)
        else:
            self._deliver(receiver, data)

    def _deliver(self, receiver: SimSocket, data: bytes | None) -> None:
        incoming = receiver.incoming
        incoming.under_way.append(data)
        incoming.last_arrival = max(incoming.last_arrival, self.loop.time() + self.delay())
        self.loop.call_at(incoming.last_arrival, receiver.arrive, context=NOBODY)
