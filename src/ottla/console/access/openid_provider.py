"""An OpenID provider: its addresses, its keys, and the tokens that it gives. Requests wait in threads of their own."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request

from ottla.config.sasl import TokenSettings, checked_url
from ottla.console.access.openid_flow import LoginProblem, reported
from ottla.errors import InvalidConfig, sentence
from ottla.security.bearer_tokens import LONGEST_TOKEN, key_id, need_jwt, signed_claims
from ottla.security.provider_keys import ProviderKeys, read_answer
from ottla.security.sasl import AuthenticationRefused

T = TypeVar("T")

AT_A_TIME: Final = 4
"""Requests to the provider at a time; others wait."""
WAIT_S: Final = 20.0
KEPT_S: Final = 3600.0
"""How long the provider's addresses are used before they are read again."""
PAUSE_S: Final = 5.0
"""How long a provider that does not answer is not asked for its addresses again."""
LEEWAY_S: Final = 30
"""By how much the clocks of the provider and the console may differ."""
_LONGEST_ERROR_BYTES: Final = 1 << 14
_LONGEST_LIFE_S: Final = 10**8


class OpenIdSettings(NamedTuple):
    """The provider, and how the console is known there."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    user_claim: str = "preferred_username"
    groups_claim: str | None = None
    scope: str = "openid profile email"
    base: str | None = None
    """Where browsers reach the console; None: at its own host and port."""
    host: str = "127.0.0.1"

    def __repr__(self) -> str:
        """Without the secret."""
        return f"OpenIdSettings({self.issuer}, {self.client_id})"


class Addresses(NamedTuple):
    """What the console takes from the discovery document of a provider."""

    authorization: str
    token: str
    keys: str
    by_header: bool
    """Whether the client's secret goes into a header, rather than into the form."""
    names_issuer: bool
    """Whether answers name the provider (RFC 9207)."""


class Tokens(NamedTuple):
    """What a provider has given. `expires_s`: when the access token ends, in seconds since 1970; None: unknown."""

    access: str
    expires_s: float | None
    refresh: str | None
    identity: str | None

    def __repr__(self) -> str:
        """Without the tokens."""
        return f"Tokens(expires_s={self.expires_s})"


class ProviderSilent(Exception):
    """The provider does not answer, or not as one; the message is a sentence."""


class OpenIdProvider:
    """Asks one provider. On one event loop; `close` it."""

    def __init__(
        self,
        settings: OpenIdSettings,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        read: Callable[[Request], bytes] = read_answer,
    ) -> None:
        """`now`: seconds of a monotonic clock; `wall`: since 1970. `read` gets an answer, in a thread."""
        self.settings: Final = settings
        self._now = now
        self._wall = wall
        self._read = read
        self._threads = ThreadPoolExecutor(AT_A_TIME, "console-openid")
        self._lock = asyncio.Lock()
        self._found: Addresses | None = None
        self._keys: ProviderKeys | None = None
        self._problem = ""
        self._ask_at = 0.0

    def close(self) -> None:
        """Wait for nothing that is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def addresses(self) -> Addresses:
        """The provider's addresses, read at most once in an hour. Raises ProviderSilent."""
        async with self._lock:
            if self._now() >= self._ask_at:
                await self._discover()
            if self._found is None:
                raise ProviderSilent(self._problem)
            return self._found

    async def _discover(self) -> None:
        url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            found = addresses_of(await self._asked(Request(url)), self.settings.issuer)
        except (ProviderSilent, LoginProblem) as problem:  # what was found before goes on to be used
            self._problem = f"the addresses of the provider cannot be read: {problem}"
            self._ask_at = self._now() + PAUSE_S
            return
        if self._found is None or self._found.keys != found.keys:
            own = self.settings
            wanted = TokenSettings(found.keys, own.issuer, (own.client_id,), "sub", "scope", LEEWAY_S)
            self._keys = ProviderKeys(wanted, asyncio.get_running_loop())
        self._found, self._ask_at = found, self._now() + KEPT_S

    async def exchange(self, code: str, verifier: str, redirect: str) -> Tokens:
        """The tokens of a code. Raises ProviderSilent, LoginProblem."""
        return await self._tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "code_verifier": verifier,
                "redirect_uri": redirect,
            }
        )

    async def renew(self, refresh: str) -> Tokens:
        """New tokens of a refresh token. Raises ProviderSilent; LoginProblem if the user is no longer welcome."""
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh})

    async def _tokens(self, form: Mapping[str, str]) -> Tokens:
        found = await self.addresses()
        request = token_request(found, self.settings, form)
        return tokens_of(await self._asked(request), self._wall())

    async def claims(self, token: str) -> dict[str, Any]:
        """The claims of an id token, if the provider has signed it for this console, and it is valid now.

        Raises LoginProblem, ProviderSilent.
        """
        await self.addresses()
        assert self._keys is not None
        try:
            if self._keys.are_wanted(key_id(token)):
                await self._keys.read()
            if not self._keys.known:
                raise ProviderSilent("the keys of the provider cannot be read; the console's log has the reason")
            return signed_claims(self._keys.settings, self._keys.known, token)
        except AuthenticationRefused as refused:
            raise LoginProblem(f"the id token is not to be believed: {refused}") from None

    async def _asked(self, request: Request) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(WAIT_S):
                content = await loop.run_in_executor(self._threads, self._read, request)
            answer = json.loads(content)
        except HTTPError as error:
            raise await loop.run_in_executor(self._threads, _refusal, error) from None
        except (OSError, ValueError, RecursionError) as problem:
            raise ProviderSilent(f"{request.full_url}: {sentence(problem) or 'no answer in time'}") from None
        if not isinstance(answer, dict):
            raise ProviderSilent(f"{request.full_url}: the answer is no JSON object")
        return answer


def _refusal(error: HTTPError) -> Exception:
    """What an answer with a status of failure means. Reads its beginning, in a thread."""
    try:
        content = error.fp.read1(_LONGEST_ERROR_BYTES)  # type: ignore[attr-defined] # one of the system's: a body may come slowly
        answer = json.loads(content)
        reason = reported(answer["error"], str(answer.get("error_description", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ProviderSilent(f"{error.url} answers {error.code} {reported(str(error.reason), '')}")
    finally:
        error.close()
    if error.code in (400, 401, 403):
        return LoginProblem(f"the provider refuses: {reason}")
    return ProviderSilent(f"{error.url} answers {error.code}: {reason}")


# -- pure --------------------------------------------------------------------------------------------------------------


def web_url(name: str, url: object) -> str:
    """An address that nobody on the way can read: by https, or on this machine. Raises InvalidConfig."""
    if not isinstance(url, str) or not url.startswith(("https://", "http://")) or not url.isascii():
        raise InvalidConfig(f"{name}: it has to be an https URL (http is for localhost only)")
    return checked_url(name, url)


def check_issuer(name: str, url: str) -> None:
    """Raise InvalidConfig if nobody could log in by this provider."""
    web_url(name, url)
    need_jwt()


def addresses_of(document: Mapping[str, Any], issuer: str) -> Addresses:
    """The addresses of a discovery document. Raises ProviderSilent."""
    if document.get("issuer") != issuer:
        raise ProviderSilent(f"they are of the issuer {str(document.get('issuer'))[:200]!r}, not of {issuer!r}")
    challenges = document.get("code_challenge_methods_supported")
    if challenges is not None and "S256" not in challenges:
        raise ProviderSilent("it does not offer PKCE with S256")
    ways = document.get("token_endpoint_auth_methods_supported")
    try:
        return Addresses(
            web_url("authorization_endpoint", document.get("authorization_endpoint")),
            web_url("token_endpoint", document.get("token_endpoint")),
            web_url("jwks_uri", document.get("jwks_uri")),
            not isinstance(ways, list) or "client_secret_basic" in ways,
            document.get("authorization_response_iss_parameter_supported") is True,
        )
    except InvalidConfig as problem:
        raise ProviderSilent(str(problem)) from None


def token_request(found: Addresses, settings: OpenIdSettings, form: Mapping[str, str]) -> Request:
    """A request for tokens, by which the console proves itself if it has a secret."""
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    content, secret = dict(form), settings.client_secret
    if secret is not None and found.by_header:
        login = f"{quote(settings.client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = "Basic " + b64encode(login.encode()).decode()
    else:
        content["client_id"] = settings.client_id
        if secret is not None:
            content["client_secret"] = secret
    return Request(found.token, urlencode(content).encode(), headers, method="POST")


def tokens_of(answer: Mapping[str, Any], wall_s: float) -> Tokens:
    """The tokens of an answer that came at `wall_s`. Raises LoginProblem."""
    access, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginProblem("the provider gives no bearer token")
    if not _is_token(access):
        raise LoginProblem("the provider gives no access token that brokers could take")
    life_s = answer.get("expires_in")
    refresh, identity = answer.get("refresh_token"), answer.get("id_token")
    return Tokens(
        str(access),
        wall_s + min(max(life_s, 0), _LONGEST_LIFE_S) if isinstance(life_s, int | float) and life_s == life_s else None,
        str(refresh) if _is_token(refresh) else None,
        str(identity) if _is_token(identity) else None,
    )


def _is_token(text: object) -> bool:
    """Whether it fits into the messages in which it is sent: a control character would end it there."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TOKEN and text.isascii() and text.isprintable()
