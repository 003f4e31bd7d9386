"""Questions to a broker that need no client library: is a port free, does a broker answer yet."""

import os
import random
import re
import socket
import struct
from contextlib import ExitStack

_METADATA_KEY = 3
_METADATA_VERSION = 4
# Below Linux's range of ephemeral ports, so that no outgoing connection sits on a port we hand out.
_PORT_RANGE = (20_000, 32_000)
_SHARES = 8
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on at this moment, never the same twice.

    Each worker of pytest-xdist takes from its own share of the range: a server that is down for a moment, to be
    started again, finds its port free.

    Raises:
        OSError: no port of the share could be bound in two hundred attempts.
    """
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", ""))
    share = int(worker or 0) % _SHARES
    size = (_PORT_RANGE[1] - _PORT_RANGE[0]) // _SHARES
    ports = range(_PORT_RANGE[0] + share * size, _PORT_RANGE[0] + (share + 1) * size)
    chooser = random.SystemRandom()  # pytest-randomly seeds the shared generator: every worker would agree
    for _ in range(200):
        port = chooser.choice(ports)
        if port in _given:
            continue
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"no free TCP port between {ports.start} and {ports.stop}")


def free_ports_in_a_row(count: int) -> int:
    """The first of so many."""
    while True:
        port = free_port()
        with ExitStack() as stack:
            try:
                for after in range(1, count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port + after))
            except OSError:
                continue
            return port


def listens(port: int, *, host: str = "127.0.0.1") -> bool:
    """Tell whether a connection to `host`:`port` is accepted: how a controller, which answers no client, is ready."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def knows_a_broker(port: int, *, host: str = "127.0.0.1", timeout_s: float = 1.0) -> bool:
    """Tell whether the broker on `host`:`port` answers Metadata v4 with at least one live broker.

    A KRaft broker lists itself only once its controller has unfenced it: later than "the port is open".
    """
    # size | api key | version | correlation id | client id "probe" | topics: empty | allow auto creation: no
    body = struct.pack(">hhih5siB", _METADATA_KEY, _METADATA_VERSION, 7, 5, b"probe", 0, 0)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            reply = _receive(connection, 12)  # size | correlation id | throttle time
            brokers = struct.unpack(">i", _receive(connection, 4))[0]
    except OSError:
        return False
    return bool(struct.unpack_from(">i", reply, 4)[0] == 7 and brokers > 0)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        received += piece
    return received
