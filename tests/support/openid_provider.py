"""An OpenID provider of tests, which listens on this machine: its users log in without being asked."""

import json
import time
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.support.identity_provider import IdentityProvider

CLIENT: Final = "console"
SECRET: Final = "s%cret:"


class OpenIdProvider:
    """Inside `with`, it listens. `user` logs in next."""

    def __init__(self, keys: IdentityProvider) -> None:
        self.keys = keys
        self.user = "alice"
        self.groups: list[str] = []
        self.life_s = 3600
        self.refused = False
        """Whether users may renew nothing any longer."""
        self.renewals = 0
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: value for name, (value,) in parse_qs(parts.query).items()}
                if parts.path == "/.well-known/openid-configuration":
                    self._send(200, provider.document())
                elif parts.path == "/keys":
                    self._send(200, json.loads(keys.document()))
                elif parts.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.authorize(query))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    self._send(404, {})

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: value for name, (value,) in parse_qs(text).items()}
                login = b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
                is_console = [unquote(each) for each in login.split(":")] == [CLIENT, SECRET]
                found = provider.exchange(form) if is_console else None
                self._send(*((400, {"error": "invalid_grant"}) if found is None else (200, found)))

            def _send(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def document(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "code_challenge_methods_supported": ["S256"],
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where a browser is led with the code of the user."""
        assert (query["client_id"], query["response_type"], query["code_challenge_method"]) == (CLIENT, "code", "S256")
        code = f"code-{len(self._codes)}"
        self._codes[code] = {**query, "user": self.user}
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str]) -> dict[str, Any] | None:
        """The tokens of a code, once; or those of a refresh token."""
        if form["grant_type"] == "refresh_token":
            self.renewals += 1
            user, nonce = form["refresh_token"].removeprefix("refresh-"), None
            if self.refused:
                return None
        else:
            asked = self._codes.pop(form["code"], None)
            challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            if asked is None or (asked["code_challenge"], asked["redirect_uri"]) != (challenge, form["redirect_uri"]):
                return None
            user, nonce = asked["user"], asked["nonce"]
        end = int(time.time()) + self.life_s
        return {
            "access_token": self.keys.token(user, iss=self.url, exp=end),
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "refresh_token": f"refresh-{user}",
            "id_token": self.keys.token(
                user, iss=self.url, aud=CLIENT, preferred_username=user, groups=self.groups, nonce=nonce
            ),
        }

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
