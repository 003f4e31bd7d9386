"""A proxy before an HTTP server that fails some requests: refuses, breaks off, stalls."""

import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Literal, Self

Fault = Literal["none", "refuse", "reset", "cut", "stall"]
"""refuse: 503; reset: the connection ends without an answer, after the server has done what was asked; cut: amid the
answer; stall: the answer comes too late."""
STALL_S: Final = 0.6
_HOP: Final = ("connection", "transfer-encoding", "keep-alive", "content-length")


class FaultyProxy:
    """For `with`. port: the server's. fault: asked for each request."""

    def __init__(self, port: int, fault: Callable[[], Fault]) -> None:
        self.faults = 0
        self.fault = fault
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                fault = proxy.fault()
                proxy.faults += fault != "none"
                if fault == "refuse":
                    self.send_response(503)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                server = http.client.HTTPConnection("127.0.0.1", port)
                server.request(self.command, self.path, body, dict(self.headers))
                answer = server.getresponse()
                content = answer.read()
                server.close()
                if fault == "stall":
                    time.sleep(STALL_S)
                if fault == "reset":
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                size = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
                self.send_header("content-length", size or "0")
                self.end_headers()
                if fault == "cut":
                    self.close_connection = True
                    content = content[: len(content) // 2]
                self.wfile.write(content)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.forward
                raise AttributeError(name)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that do not wait for what stalls

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
