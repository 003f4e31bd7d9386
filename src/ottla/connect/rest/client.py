"""Asking a worker's REST API, Kafka Connect's alike."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError


class RestError(Exception):
    """An answer that is an error: its HTTP status, and its body from JSON (the text, if it is none)."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body

    @property
    def message(self) -> str:
        """The worker's sentence."""
        if isinstance(self.body, dict) and "message" in self.body:
            return str(self.body["message"])
        return f"the worker answered {self.status}: {' '.join(str(self.body or 'nothing').split())[:200]}"


class Access(NamedTuple):
    """How a client proves its name, and recognizes the worker: the header Authorization, and a context of TLS."""

    authorization: str | None = None
    context: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Access({'' if self.authorization is None else self.authorization.partition(' ')[0]})"


def basic(user: str, password: str) -> str:
    """The header of a user with a password. Raises ValueError for a name with a colon."""
    if ":" in user:
        raise ValueError("a user's name has no colon in it")
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """The header of a token."""
    return f"Bearer {token.strip()}"


def trusting(authority: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """A context that trusts the certificates of a PEM file (None: the system's), and shows its own from PEM files.

    Raises OSError for files that cannot be read, and ssl.SSLError, an OSError, for those that hold something else.
    """
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    within_s: float,
    access: Access | None = None,
    most_bytes: int | None = None,
) -> Any:
    """One request; its answer from JSON, None if it has none. Redirects are not followed: they would take the password
    along.

    Raises RestError; OSError or ValueError if no worker answers at `url`, and for an answer larger than `most_bytes`.
    """
    access = access or Access()
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if access.authorization is not None:
        headers["Authorization"] = access.authorization
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if access.context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=access.context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=within_s) as answer:
            text = answer.read(None if most_bytes is None else most_bytes + 1)
    except urllib.error.HTTPError as refused:
        with refused:
            raise RestError(refused.code, _error_body(_rest_of(refused, most_bytes))) from None
    except http.client.HTTPException as failure:
        raise OSError(f"it does not answer as a web server does: {failure}") from failure
    if most_bytes is not None and len(text) > most_bytes:
        raise ValueError(f"its answer is larger than {most_bytes:,} bytes")
    return json.loads(text) if text else None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        raise HTTPError(req.full_url, code, msg, headers, fp)


def _rest_of(refused: urllib.error.HTTPError, most_bytes: int | None) -> bytes:
    """The body, as far as it comes: the connection may be closed before a request has been sent whole."""
    try:
        return refused.read() if most_bytes is None else refused.read(most_bytes)
    except (OSError, http.client.HTTPException):
        return b""


def _error_body(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")
