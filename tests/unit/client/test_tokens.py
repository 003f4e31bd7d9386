"""Bearer tokens: by client credentials from a provider that is honest, slow, or wrong, and from files."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.support.identity_provider import IdentityProvider

from ottla.client.errors import AuthenticationFailed
from ottla.client.properties import ENDPOINT, PropertiesProblem
from ottla.client.tokens import TokenSource


class Provider(ThreadingHTTPServer):
    """Answers with `answer`, and remembers what it was asked."""

    answer: tuple[int, bytes] = (200, b"")
    asked: list[tuple[str, dict[str, list[str]]]]


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.headers["Authorization"], parse_qs(body)))
        code, content = self.server.answer
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def properties(provider: Provider) -> dict[str, str]:
    return {
        ENDPOINT: f"http://127.0.0.1:{provider.server_port}/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s:3",
        "sasl.oauthbearer.scope": "kafka",
    }


def test_a_token_is_kept_for_most_of_its_life(provider: Provider) -> None:
    provider.answer = 200, json.dumps({"access_token": "abc", "expires_in": 100}).encode()
    now = [1000.0]
    source = TokenSource(properties(provider), lambda: now[0])
    assert source.token() == ("abc", 1100.0)
    now[0] = 1079.0
    assert source.token().text == "abc"
    assert provider.asked == [
        ("Basic bWU6cyUzQTM=", {"grant_type": ["client_credentials"], "scope": ["kafka"]}),
    ]
    now[0] = 1081.0
    assert source.token().expires_s == 1181.0
    assert "abc" not in repr(source.token())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((401, b"no"), "answers 401 .*client.id, the secret and the scope right"),
        ((500, b""), "answers 500"),
        ((302, b""), "answers 302"),
        ((200, b"<html>"), "not JSON"),
        ((200, b"{}"), "has no access_token"),
        ((200, b'{"access_token": "opaque"}'), "no JSON Web Token"),
    ],
)
def test_answers_without_a_token(provider: Provider, answer: tuple[int, bytes], problem: str) -> None:
    provider.answer = answer
    with pytest.raises(AuthenticationFailed, match=problem) as failed:
        TokenSource(properties(provider)).token()
    assert "s:3" not in str(failed.value)


def test_no_secret_is_sent_without_encryption_or_to_nobody(provider: Provider) -> None:
    given = properties(provider)
    with pytest.raises(PropertiesProblem, match="has to begin with https"):
        TokenSource({**given, ENDPOINT: "http://id.example/token"})
    with pytest.raises(PropertiesProblem, match=r"needs sasl\.oauthbearer\.client\.secret"):
        TokenSource({**given, "sasl.oauthbearer.client.secret": ""})
    with pytest.raises(PropertiesProblem, match="the identity provider, or a token's file"):
        TokenSource({})


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    signer = IdentityProvider()
    path = tmp_path / "a token"
    source = TokenSource({ENDPOINT: path.as_uri()})
    with pytest.raises(AuthenticationFailed, match="cannot be read: No such file"):
        source.token()
    for user in ("alice", "bob"):
        token = signer.token(user)
        path.write_text(f"{token}\n")
        assert source.token().text == token
    path.write_text(signer.token(exp=int(time.time()) - 1))
    with pytest.raises(AuthenticationFailed, match="has expired"):
        source.token()
    path.write_text("nonsense")
    with pytest.raises(AuthenticationFailed, match="no JSON Web Token"):
        source.token()
