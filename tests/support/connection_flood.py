"""Many connections that do harm, each in one of four ways, held open by a process of its own.

idle            nothing is sent
slow reader     three requests for all metadata at once, and no answer is read
giant frame     a request of 100 MB is announced, and the beginning of it sent
half a handshake   the first bytes of a TLS handshake
"""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ottla.protocol.framing import encode_request
from ottla.protocol.messages.metadata import MetadataRequest

METADATA: Final = b"".join(map(bytes, encode_request(MetadataRequest(topics=None), 12, 1, "flood")))  # type: ignore[arg-type]
GIANT: Final = (100 << 20).to_bytes(4, "big")
HELLO: Final = b"\x16\x03\x01"
TLS_TURN: Final = 3
CONNECT_S: Final = 5.0


@contextmanager
def flood(bootstrap: str, tls: str, count: int, *, giant_bytes: int, processes: int = 1) -> Iterator[int]:
    """So many connections in all for as long as the context lasts; gives how many could be opened. `giant_bytes`: what
    is sent of each giant frame."""
    root = Path(__file__).parents[2]
    with ExitStack() as stack:
        started = []
        for number in range(processes):
            command = [sys.executable, "-m", "tests.support.connection_flood", bootstrap, tls]
            arguments = [str(count // processes), str(giant_bytes), f"127.0.0.{10 + number}"]
            process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
            stack.enter_context(process)
            assert process.stdin is not None
            stack.callback(process.stdin.close)
            started.append(process)
        opened = 0
        for process in started:
            assert process.stdout is not None
            opened += int(process.stdout.readline())
        yield opened


def main(bootstrap: str, tls: str, count: int, giant_bytes: int, source: str) -> None:
    """Open connections, print how many, and hold them until stdin ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    first = (b"", METADATA * 3, GIANT + bytes(giant_bytes), HELLO)
    held = []
    for number in range(count):
        turn = number % len(first)
        host, _, port = (tls if turn == TLS_TURN else bootstrap).rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), CONNECT_S, (source, 0))
        except OSError:
            continue
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(first[turn])
        held.append(connection)
    print(len(held), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
