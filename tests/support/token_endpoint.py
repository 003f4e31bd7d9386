"""An identity provider's endpoint of a test: gives tokens to clients with the right secret (RFC 6749, section 4.4)."""

import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs

from tests.support.identity_provider import IdentityProvider

CLIENT: Final = ("broker", "s%cret:")


class TokenEndpoint:
    """Inside `with`, it listens on this machine."""

    def __init__(self, provider: IdentityProvider, life_s: int) -> None:
        self.given: list[str] = []
        """The scopes of the tokens that were given."""
        self.refused = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                expected = "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode()
                if self.headers["Authorization"] != expected or form["grant_type"] != ["client_credentials"]:
                    endpoint.refused += 1
                    self.send_error(401)
                    return
                endpoint.given += form.get("scope", [""])
                token = provider.token("broker", exp=int(time.time()) + life_s)
                body = json.dumps({"access_token": token, "token_type": "Bearer"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
