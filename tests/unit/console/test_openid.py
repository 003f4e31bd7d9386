"""Logins by OpenID Connect, through the whole application with a provider: what is taken, and all that is refused."""

import asyncio
import base64
import hmac
import html
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import click
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.support.identity_provider import IdentityProvider
from tests.support.openid_provider import CLIENT, SECRET
from tests.support.openid_provider import OpenIdProvider as Provider

from ottla.cli.console.openid import openid_settings
from ottla.client.errors import AuthenticationFailed
from ottla.client.security import security_of
from ottla.console.access.access import Access, Settings
from ottla.console.access.audit import AuditTrail
from ottla.console.access.openid_flow import ATTEMPT_S, Attempts, LoginProblem, check_claims, code_of, identity_of
from ottla.console.access.openid_logins import UserToken, end_of
from ottla.console.access.openid_provider import (
    OpenIdSettings,
    ProviderSilent,
    Tokens,
    addresses_of,
    token_request,
    tokens_of,
)
from ottla.console.access.origins import origin_of
from ottla.console.access.roles import Role, parse_roles
from ottla.console.app import application
from ottla.console.cluster import Page

BASE: Final = "http://127.0.0.1:8080"
CALLBACK: Final = "/login/oidc/callback"


class View:
    """A cluster's stand-in, with the connections of one user."""

    def __init__(self, bootstrap: str, properties: Mapping[str, Any]) -> None:
        self.token = properties["oauth_cb"]
        self.reconnected = False
        assert [name for name in properties if name.startswith("sasl.")] == ["sasl.mechanism"]

    async def topics_page(self, *_: object, **__: object) -> Page:
        return Page([], 0, 0)

    async def reconnect(self) -> None:
        self.reconnected = True

    def close(self) -> None:
        pass


class Console:
    """A console with a login by a provider, and a browser."""

    def __init__(self, provider: Provider, **openid: Any) -> None:
        self.provider = provider
        self.now = 0.0
        self.lines: list[dict[str, Any]] = []
        self.brokers_take = True
        settings = OpenIdSettings(provider.url, CLIENT, SECRET, **{"groups_claim": "groups", **openid})
        self.access = Access(
            Settings(
                "h:1",
                {"security.protocol": "SASL_SSL", "sasl.oauthbearer.client.id": "the console's own"},
                asks_login=True,
                openid=settings,
                roles=parse_roles(["ann=admin", "eve=none", "group:staff=editor", "group:out=none"]),
                trail=AuditTrail(lambda lines: self.lines.extend(map(json.loads, lines.splitlines()))),
            ),
            lambda: self.now,
            cast(Any, View),
            self._check,
        )
        self.http = self.browser()

    async def _check(self, bootstrap: str, properties: Mapping[str, Any]) -> None:
        if not self.brokers_take:
            raise AuthenticationFailed("no")

    def browser(self, base: str = BASE) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(application(self.access)), base_url=base)

    async def begin(self, browser: httpx.AsyncClient | None = None, **query: str) -> dict[str, str]:
        """Go to the provider; returns the query of its address."""
        answer = await (browser or self.http).get("/login/oidc", params=query)
        assert answer.status_code == 303, answer.text
        location = urlsplit(answer.headers["location"])
        assert f"{location.scheme}://{location.netloc}{location.path}" == f"{self.provider.url}/authorize"
        return dict(parse_qsl(location.query))

    def authorized(self, asked: dict[str, str], user: str = "alice") -> str:
        """Where the provider leads back to."""
        self.provider.user = user
        return self.provider.authorize(asked)

    async def log_in(self, user: str = "alice", browser: httpx.AsyncClient | None = None) -> httpx.Response:
        http = browser or self.http
        return await http.get(self.authorized(await self.begin(http), user))

    async def is_in(self, browser: httpx.AsyncClient | None = None) -> bool:
        return (await (browser or self.http).get("/topics")).status_code == 200


@pytest.fixture(scope="module")
def keys() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def provider(keys: IdentityProvider) -> Iterator[Provider]:
    with Provider(keys) as running:
        yield running


def run(test: Callable[[Console], Awaitable[None]], provider: Provider, **openid: Any) -> Console:
    async def main() -> Console:
        console = Console(provider, **openid)
        await test(console)
        await console.http.aclose()
        console.access.close()
        return console

    return asyncio.run(main())


def test_a_login_and_its_logout(provider: Provider) -> None:
    async def test(console: Console) -> None:
        assert (await console.http.get("/topics")).headers["location"] == "/login?next=%2Ftopics"
        assert "/login/oidc?next=%2Ftopics" in (await console.http.get("/login?next=/topics")).text
        passwords = await console.http.post("/login", data={"user": "a", "password": "b"}, headers={"Origin": BASE})
        assert passwords.status_code == 405
        asked = await console.begin(next="/topics?q=a&b=c")
        assert asked["redirect_uri"] == BASE + CALLBACK
        assert asked["scope"] == "openid profile email"
        answer = await console.http.get(console.authorized(asked, "ann"))
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert 'content="0;url=/topics?q=a&amp;b=c"' in answer.text
        session, attempt = answer.headers.get_list("set-cookie")
        assert all(each in session for each in ("HttpOnly", "SameSite=strict", "ottla-console-8080="))
        assert all(each in attempt for each in ("HttpOnly", "SameSite=lax", "Max-Age=0"))
        assert "ann (admin)" in (await console.http.get("/topics")).text
        (held,) = console.access.sessions._sessions.values()
        token, end_s = held.holder[0].view.token("")
        assert jwt.decode(token, options={"verify_signature": False})["sub"] == "ann"
        assert end_s > time.time()
        form = {"csrf": held.holder[0].token}
        assert (await console.http.post("/logout", data=form, headers={"Origin": BASE})).status_code == 303
        assert not await console.is_in()
        assert console.access.openid is not None
        assert console.access.openid._tokens == {}

    console = run(test, provider)
    found = [(each["outcome"], each["principal"], each["mechanism"]) for each in console.lines]
    assert found == [("succeeded", "User:ann", "OAUTHBEARER")]


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("alice", ["others"], "(viewer)"),
        ("alice", ["staff"], "(editor)"),
        ("ann", ["out"], "(admin)"),
        ("alice", ["staff", "out"], None),
        ("eve", ["staff"], None),
        ("group:staff", [], "(viewer)"),
    ],
)
def test_roles_of_users_and_groups(provider: Provider, user: str, groups: list[str], expected: str | None) -> None:
    async def test(console: Console) -> None:
        console.provider.groups = groups
        answer = await console.log_in(user)
        assert answer.status_code == (403 if expected is None else 200)
        assert await console.is_in() is (expected is not None)
        assert expected is None or expected in (await console.http.get("/topics")).text

    run(test, provider)


def test_an_answer_counts_once_and_in_the_browser_that_has_asked(provider: Provider) -> None:
    async def test(console: Console) -> None:
        async with console.browser() as other:
            answer = console.authorized(await console.begin())
            forced = await other.get(answer)  # of a page that means harm: its own login in another's browser
            assert (forced.status_code, "has begun no login" in forced.text) == (403, True)
            own = await console.begin(other)
            mixed = await other.get(answer)
            assert (mixed.status_code, "belongs to another login" in mixed.text) == (403, True)
            assert not await console.is_in(other)

            cookies = dict(console.http.cookies)
            assert (await console.http.get(answer)).status_code == 200
            other.cookies.clear()
            other.cookies.update(cookies)
            replayed = await other.get(answer)
            assert (replayed.status_code, "has come before" in replayed.text) == (403, True)
            assert not await console.is_in(other)

            console.http.cookies.clear()
            # a code of somebody else, put into an answer with the right state
            theirs = dict(parse_qsl(urlsplit(console.authorized(await console.begin(), "ann")).query))["code"]
            own = await console.begin(other)
            injected = await other.get(CALLBACK, params={"code": theirs, "state": own["state"]})
            assert (injected.status_code, "invalid_grant" in injected.text) == (403, True)
            for query in ({}, {"state": ""}, {"code": "x"}, {"state": "\u20ac", "code": "x"}):
                assert (await other.get(CALLBACK, params=query)).status_code == 403
            assert len(console.access.sessions) == 1

    run(test, provider)


def test_a_cookie_is_taken_as_it_was_given() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    attempt = attempts.begin("/topics/\u00e4?q=1.2")
    assert attempts.begin("/").verifier != attempt.verifier
    for forged in (
        "",
        ".",
        "...",
        "a.b.c.d",
        "\ud800",
        attempt.cookie[:-1],
        attempt.cookie.replace(".0.", ".9."),
        "a" * 9999,
    ):
        with pytest.raises(LoginProblem, match="no login"):
            attempts.take(forged, attempt.state)
    for state in ("", attempt.nonce, attempt.state[:-1], "\ud800"):
        with pytest.raises(LoginProblem, match="another login"):
            attempts.take(attempt.cookie, state)
    with pytest.raises(LoginProblem, match="no login"):
        Attempts(lambda: now).take(attempt.cookie, attempt.state)  # of another console, or before a restart
    assert attempts.take(attempt.cookie, attempt.state) == attempt
    with pytest.raises(LoginProblem, match="before"):
        attempts.take(attempt.cookie, attempt.state)
    late = attempts.begin("/")
    now = ATTEMPT_S + 1
    with pytest.raises(LoginProblem, match="longer than 10 minutes"):
        attempts.take(late.cookie, late.state)
    assert attempts.begin("/" + "a" * 5000).following == "/"
    assert len(attempt.verifier) == 43
    assert attempt.state not in repr(attempt)


def test_the_login_leads_nowhere_else(provider: Provider) -> None:
    async def test(console: Console) -> None:
        for following in (
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "javascript:1",
        ):
            console.http.cookies.clear()
            answer = await console.http.get(console.authorized(await console.begin(next=following)))
            assert (answer.status_code, 'content="0;url=/"' in answer.text) == (200, True), following
        console.http.cookies.clear()
        quoted = await console.begin(next='/"><script>')
        assert "<script>" not in (await console.http.get(console.authorized(quoted))).text.replace("<script src", "")
        async with console.browser("http://localhost:8080") as other:
            moved = await other.get("/login/oidc?next=/topics")
            assert moved.headers["location"] == f"{BASE}/login/oidc?next=%2Ftopics"
        for base in ("http://[::1]:8080", "http://127.0.0.1"):
            async with console.browser(base) as other:
                assert (await other.get("/login/oidc")).headers["location"] == f"{BASE}/login/oidc?next=%2F"
        async with console.browser("http://evil.example") as other:
            assert (await other.get("/login/oidc")).status_code == 403
        framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert (await console.http.get("/login/oidc", headers=framed)).status_code == 403

    run(test, provider)


def _claims(provider: Provider, **changed: Any) -> Callable[[str], str]:
    def token(nonce: str) -> str:
        kept: dict[str, Any] = {"iss": provider.url, "aud": CLIENT, "preferred_username": "alice", "nonce": nonce}
        return provider.keys.token("alice", **(kept | changed))

    return token


def _confused(provider: Provider, algorithm: str) -> Callable[[str], str]:
    """Signed by nobody, or with the public key as a secret."""

    def token(nonce: str) -> str:
        good = _claims(provider)(nonce)
        public = provider.keys.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "first"}).encode()).decode().rstrip("=")
        signed = f"{head}.{good.split('.')[1]}"
        if algorithm == "none":
            return f"{signed}."
        mark = hmac.digest(public, signed.encode(), sha256)
        return f"{signed}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"

    return token


REFUSED: Final[dict[str, tuple[Callable[[Provider], Callable[[str], str]], str]]] = {
    "nonce of another login": (lambda given: _claims(given, nonce="x"), "nonce differs"),
    "no nonce": (lambda given: _claims(given, nonce=None), "nonce differs"),
    "audience": (lambda given: _claims(given, aud="ottla"), "Audience"),
    "no audience": (lambda given: _claims(given, aud=None), "aud"),
    "several audiences without a party": (lambda given: _claims(given, aud=[CLIENT, "x"]), "another client"),
    "another party": (lambda given: _claims(given, azp="x"), "another client"),
    "issuer": (lambda given: _claims(given, iss="https://issuer"), "issuer"),
    "expired": (lambda given: _claims(given, exp=int(time.time()) - 60), "expired"),
    "no end": (lambda given: _claims(given, exp=None), "exp"),
    "from the future": (lambda given: _claims(given, iat=int(time.time()) + 600), "not yet valid"),
    "another access token": (lambda given: _claims(given, at_hash="x"), "does not belong"),
    "no name": (lambda given: _claims(given, preferred_username=None), "preferred_username"),
    "a name with a line's end": (lambda given: _claims(given, preferred_username="a\nb"), "preferred_username"),
    "groups that are none": (lambda given: _claims(given, groups={"a": 1}), "groups"),
    "no signature": (lambda given: _confused(given, "none"), "not to be believed"),
    "the public key as a secret": (lambda given: _confused(given, "HS256"), "not to be believed"),
    "another's key": (
        lambda given: (
            lambda nonce: jwt.encode(
                jwt.decode(_claims(given)(nonce), options={"verify_signature": False}),
                IdentityProvider().keys["first"],
                "RS256",
                headers={"kid": "first"},
            )
        ),
        "not to be believed",
    ),
    "no token": (lambda given: lambda nonce: "a.b", "not to be believed"),
}


def test_id_tokens_that_are_refused(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    made = provider.exchange

    async def test(console: Console) -> None:
        for name, (make, reason) in REFUSED.items():
            asked = await console.begin()
            token = make(provider)(asked["nonce"])
            monkeypatch.setattr(
                provider, "exchange", lambda form, token=token: {**(made(form) or {}), "id_token": token}
            )
            answer = await console.http.get(console.authorized(asked))
            assert (answer.status_code, reason in html.unescape(answer.text)) == (403, True), (name, answer.text)
            assert not await console.is_in(), name
        asked = await console.begin()
        token = _claims(provider, aud=[CLIENT, "ottla"], azp=CLIENT)(asked["nonce"])
        monkeypatch.setattr(provider, "exchange", lambda form: {**(made(form) or {}), "id_token": token})
        assert (await console.http.get(console.authorized(asked))).status_code == 200

    console = run(test, provider)
    outcomes = [each["outcome"] for each in console.lines]
    assert (set(outcomes[:-1]), outcomes[-1]) == ({"failed"}, "succeeded")


def test_what_the_provider_says_is_shown_and_is_no_script(provider: Provider) -> None:
    async def test(console: Console) -> None:
        asked = await console.begin()
        query = {"state": asked["state"], "error": "access_denied", "error_description": "<script>x</script>\x1b"}
        answer = await console.http.get(CALLBACK, params=query)
        assert (answer.status_code, "access_denied (&lt;script&gt;" in answer.text) == (403, True)
        forged = await console.http.get(CALLBACK, params={"state": "x", "error": "your console was hacked"})
        assert "hacked" not in forged.text
        console.brokers_take = False
        refused = await console.log_in()
        assert (refused.status_code, "brokers do not take" in refused.text) == (403, True)
        console.brokers_take = True
        assert (await console.log_in()).status_code == 200

    run(test, provider)


def test_a_provider_that_is_away_or_another(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    good = provider.document()

    async def test(console: Console) -> None:
        monkeypatch.setattr(provider, "document", lambda: {**good, "issuer": "https://another"})
        for _ in range(2):
            answer = await console.http.get("/login/oidc")
            assert (answer.status_code, "of the issuer" in answer.text) == (502, True)
        monkeypatch.setattr(provider, "document", lambda: good)
        assert (await console.http.get("/login/oidc")).status_code == 502  # it is not asked again at once
        console.now += 10
        asked = await console.begin()
        monkeypatch.setattr(provider, "exchange", lambda form: {"token_type": "Bearer"})
        answer = await console.http.get(console.authorized(asked))
        assert (answer.status_code, "no access token" in answer.text) == (403, True)

    run(test, provider)


def test_addresses_that_are_refused() -> None:
    issuer = "https://id.example/realm"
    good = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/auth",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/keys",
    }
    assert addresses_of(good, issuer).by_header
    changes: tuple[dict[str, Any], ...] = (
        {"issuer": f"{issuer}/"},
        {"token_endpoint": "http://id.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": "file:///etc/keys"},
        {"jwks_uri": 1},
        {"code_challenge_methods_supported": ["plain"]},
    )
    for changed in changes:
        with pytest.raises(ProviderSilent):
            addresses_of({**good, **changed}, issuer)
    found = addresses_of({**good, "token_endpoint_auth_methods_supported": ["client_secret_post"]}, issuer)
    request = token_request(found, OpenIdSettings(issuer, "c", "s&"), {"code": "x"})
    assert (request.data, request.get_header("Authorization")) == (b"code=x&client_id=c&client_secret=s%26", None)
    public = token_request(found, OpenIdSettings(issuer, "c"), {"code": "x"})
    assert public.data == b"code=x&client_id=c"


def test_answers_of_another_provider() -> None:
    for query, names in (({"code": "x", "iss": "https://evil"}, False), ({"code": "x"}, True), ({"code": ""}, False)):
        with pytest.raises(LoginProblem):
            code_of(query, "https://id", names_issuer=names)
    assert code_of({"code": "x", "iss": "https://id"}, "https://id", names_issuer=True) == "x"


def test_names_by_other_claims() -> None:
    claims = {"sub": "1", "email": "a@b", "email_verified": True, "groups": "one"}
    assert identity_of(claims, "email", "groups") == ("1", "a@b", {"one"})
    with pytest.raises(LoginProblem, match="not verified"):
        identity_of({**claims, "email_verified": "true"}, "email", None)
    with pytest.raises(LoginProblem, match="subject"):
        identity_of({"email": "a@b"}, "email", None)
    access = "token"
    half = base64.urlsafe_b64encode(sha256(access.encode()).digest()[:16]).decode().rstrip("=")
    check_claims({"aud": "c", "nonce": "n", "at_hash": half}, "c", "n", access)


def test_how_long_an_access_token_is_valid(keys: IdentityProvider) -> None:
    now = time.time()

    def tokens(access: str, **more: Any) -> Tokens:
        return tokens_of({"access_token": access, "token_type": "bearer", **more}, now)

    own = keys.token(exp=int(now) + 100)
    assert end_of(tokens(own, expires_in=50), {}) == now + 50
    assert end_of(tokens(own, expires_in=1e300), {}) == int(now) + 100
    assert end_of(tokens("opaque", expires_in=10), {}) == now + 10
    assert end_of(tokens("opaque"), {"exp": int(now) + 7}) == int(now) + 7
    with pytest.raises(LoginProblem, match="how long"):
        end_of(tokens("opaque"), {})
    for bad in ({"access_token": "a\x01b"}, {"access_token": ""}, {"access_token": None}, {"token_type": "mac"}):
        with pytest.raises(LoginProblem):
            tokens_of({"access_token": "x", "token_type": "Bearer", **bad}, now)
    assert "x" not in repr(tokens("x")).removeprefix("Tokens(expires_s")


def test_a_session_ends_with_its_token_unless_that_is_renewed(provider: Provider) -> None:
    async def test(console: Console) -> None:
        console.provider.life_s = 60
        openid = console.access.openid
        assert openid is not None
        await console.log_in()
        (token,) = openid._tokens.values()
        await openid.renew()
        assert console.provider.renewals == 0  # not yet
        token.renew_at_s = 0.0
        console.provider.life_s = 600
        await openid.renew()
        assert (console.provider.renewals, token.end_s > time.time() + 500) == (1, True)
        (held,) = console.access.sessions._sessions.values()
        assert held.holder[0].view.reconnected
        console.now += 300
        assert await console.is_in()
        console.now += 301
        assert not await console.is_in()
        assert openid._tokens == {}

    run(test, provider)


@pytest.mark.parametrize("another", [False, True])
def test_a_user_that_the_provider_refuses_is_logged_out(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    async def test(console: Console) -> None:
        openid = console.access.openid
        assert openid is not None
        await console.log_in()
        (token,) = openid._tokens.values()
        token.renew_at_s = 0.0
        with monkeypatch.context() as away:
            away.setattr(openid._provider, "_read", lambda _: (_ for _ in ()).throw(OSError("away")))
            await openid.renew()
        assert await console.is_in()
        if another:
            token.refresh = "refresh-mallory"
        else:
            provider.refused = True
        await openid.renew()
        assert not await console.is_in()

    run(test, provider)


def test_a_login_makes_a_new_session(provider: Provider) -> None:
    async def test(console: Console) -> None:
        console.http.cookies.set(console.access.cookie, "A" * 43, domain="127.0.0.1")
        answer = await console.log_in()
        assert "A" * 43 not in answer.headers.get_list("set-cookie")[0]
        assert (await console.http.get("/login/oidc?next=/topics")).headers["location"] == "/topics"

    run(test, provider)


def test_connections_log_in_by_the_token_of_now() -> None:
    token = UserToken("subject")
    with pytest.raises(AuthenticationFailed, match="has ended"):
        token.supply("")
    security = security_of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token.supply}
    )
    assert security.waits
    assert security.mechanism is not None
    for text in ("first", "second"):
        token.take(Tokens(text, None, None, None), time.time() + 60, time.time())
        assert f"Bearer {text}".encode() in (security.mechanism().respond(None) or b"")


def test_groups_have_no_names_of_users() -> None:
    roles = parse_roles(["group:a=admin", "*=none"])
    assert (roles.of("group:a"), roles.of("x", ["a"]), roles.of("x", ["group:a"])) == (Role.NONE, Role.ADMIN, Role.NONE)
    assert (roles.has_groups, parse_roles(["a=admin"]).has_groups) == (True, False)


def test_secrets_are_not_shown() -> None:
    assert SECRET not in repr(OpenIdSettings("https://id", CLIENT, SECRET))


def test_addresses_as_browsers_write_them() -> None:
    written = (
        "https://A.example:443/",
        "http://a.example:80",
        "https://a.example:80",
        "http://[::1]:8080/?x",
        "http://[",
    )
    found = ["https://a.example", "http://a.example", "https://a.example:80", "http://[::1]:8080", ""]
    assert [origin_of(each) for each in written] == found


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"oidc_issuer": None}, "--oidc-client-id belongs to --oidc-issuer"),
        ({"oidc_issuer": "http://id.example"}, "https"),
        ({"oidc_issuer": "file:///id"}, "https"),
        ({"oidc_client_id": None}, "needs --oidc-client-id"),
        ({"public_url": None}, "needs --public-url"),
        ({"oidc_scope": "profile"}, "needs openid"),
        ({"oidc_client_secret_file": ""}, "one line"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = dict.fromkeys(
        ("oidc_client_secret_file", "oidc_user_claim", "oidc_roles_claim", "oidc_scope")
    )
    given |= {"oidc_issuer": "https://id.example", "oidc_client_id": "c", "public_url": "https://console.example"}
    secret = tmp_path / "secret"
    secret.write_text("a\nb\n")
    if "oidc_client_secret_file" in changed:
        changed = {"oidc_client_secret_file": secret}
    with pytest.raises(click.UsageError, match=problem):
        openid_settings({**given, **changed}, "0.0.0.0", is_local=False)
    found = openid_settings(given, "0.0.0.0", is_local=False)
    assert found is not None
    assert (found.base, found.user_claim, found.client_secret) == (
        "https://console.example",
        "preferred_username",
        None,
    )
