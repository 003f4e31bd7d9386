"""A TCP proxy whose link a test can cut: at once, silently, or after a request and before its answer."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

ANSWER_S: Final = 0.3
"""In which the target is sure to have carried out a request."""


class UnreliableLink:
    """Forwards connections from a port of its own to another port of 127.0.0.1; a context manager."""

    def __init__(self, target_port: int, port: int = 0) -> None:
        """`port`: its own, a free one when 0. Outside `with`, nobody listens there any more."""
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", port))
        self.port = int(self._server.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._accepting = threading.Event()
        self._accepting.set()
        self._swallowing = False
        self._word = b""
        self._forward_first = False
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for side in pair:
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()

    def refuse(self) -> None:
        """End all connections, and every new one at once, until `restore`."""
        self._accepting.clear()
        self.cut()

    def restore(self) -> None:
        """Take connections again."""
        self._accepting.set()

    def cut_after_next_request_with(self, word: bytes) -> None:
        """Forward the next request in which `word` stands, swallow its answer, and cut all connections."""
        self._word, self._forward_first = word, True

    def cut_before_next_request_with(self, word: bytes) -> None:
        """Cut all connections when the next request with `word` in it comes, without forwarding it."""
        self._word, self._forward_first = word, False

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if not self._accepting.is_set():
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._forward, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(far, near, False), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if outward and self._word and self._word in data:
                    self._word = b""
                    if self._forward_first:
                        self._swallowing = True
                        sink.sendall(data)
                        time.sleep(ANSWER_S)
                    break
                if outward or not self._swallowing:
                    sink.sendall(data)
        self.cut()
        self._swallowing = False
