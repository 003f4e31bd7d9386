"""`ottla console --login --oidc-issuer`: users of a provider, at a broker that takes the provider's tokens."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.console_process import Console
from tests.support.eventually import eventually
from tests.support.guarded_broker import ALL, GROUP, allow, client, guarded, rule
from tests.support.identity_provider import IdentityProvider
from tests.support.openid_provider import CLIENT, SECRET, OpenIdProvider

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    with OpenIdProvider(IdentityProvider()) as running:
        yield running


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def address(provider: OpenIdProvider, audit: Path) -> Iterator[str]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.outside.oauthbearer.sasl.jaas.config": MODULE,
        "sasl.oauthbearer.expected.issuer": provider.url,
        "sasl.oauthbearer.expected.audience": "ottla",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "ottla.audit.file": str(audit / "broker.log"),
    }
    with guarded(**settings) as (_, found):
        allow(found, rule("alice", ALL, "openid"), rule("alice", ALL, "*", GROUP))
        yield found


@pytest.fixture(scope="module")
def console(provider: OpenIdProvider, address: str, audit: Path) -> Iterator[Console]:
    (audit / "secret").write_text(f"{SECRET}\n")
    running = Console(
        address,
        *("-X", "security.protocol=SASL_PLAINTEXT", "--login", "--audit-log", str(audit / "console.log")),
        *("--oidc-issuer", provider.url, "--oidc-client-id", CLIENT),
        *("--oidc-client-secret-file", str(audit / "secret"), "--oidc-roles-claim", "groups"),
        *("--role", "group:staff=editor", "--role", "*=viewer"),
    )
    yield running
    running.close()


def events(log: Path, **wanted: Any) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.read_text().splitlines()) if wanted.items() <= line.items()]


def logged_in(console: Console, provider: OpenIdProvider, user: str, *groups: str) -> httpx.Client:
    """A browser whose user the provider knows already, so that it asks nothing."""
    provider.user, provider.groups = user, list(groups)
    browser = httpx.Client(base_url=console.url, headers={"Origin": console.url}, timeout=20, follow_redirects=True)
    assert "/login/oidc" in browser.get("/").text
    answer = browser.get("/login/oidc", params={"next": "/topics"})
    assert (answer.status_code, answer.url.path) == (200, "/login/oidc/callback"), answer.text
    assert 'content="0;url=/topics"' in answer.text
    return browser


def test_the_brokers_rules_decide_what_users_of_the_provider_see(
    console: Console, provider: OpenIdProvider, address: str, audit: Path
) -> None:
    with (
        closing(logged_in(console, provider, "alice", "staff")) as alice,
        closing(logged_in(console, provider, "bob")) as bob,
    ):
        overview = alice.get("/")
        assert (overview.status_code, "alice (editor)" in overview.text) == (200, True)
        page = alice.get("/topics").text
        token = page.split('name="csrf" value="')[1].split('"')[0]
        made = alice.post("/create-topic", data={"csrf": token, "name": "openid", "partitions": "1"})
        assert (made.status_code, "Topic openid has been created" in made.text) == (200, True), made.text
        producer = Producer(client(address, "admin"))
        producer.produce("openid", b"seen by its reader")
        assert producer.flush(20) == 0
        # over the library's connections
        assert eventually(lambda: "seen by its reader" in alice.get("/topics/openid/records/0/0").text)
        assert "/topics/openid" in alice.get("/topics").text
        assert "bob (viewer)" in bob.get("/").text
        assert "/topics/openid" not in bob.get("/topics").text
        assert bob.get("/topics/openid/records/0/0").status_code == 404
    logins = events(audit / "console.log", event="authentication", outcome="succeeded")
    assert [each["principal"] for each in logins] == ["User:alice", "User:bob"]
    created = eventually(lambda: events(audit / "broker.log", api="CREATE_TOPICS", resource="openid"))
    assert {(each["principal"], each["outcome"]) for each in created} == {("User:alice", "succeeded")}


def test_a_token_that_the_brokers_do_not_take_logs_in_nobody(
    console: Console, provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = provider.exchange

    def for_another(form: dict[str, str]) -> dict[str, Any]:
        access = provider.keys.token("mallory", iss=provider.url, aud="another")
        return {**(made(form) or {}), "access_token": access}

    monkeypatch.setattr(provider, "exchange", for_another)
    with httpx.Client(base_url=console.url, timeout=20, follow_redirects=True) as browser:
        answer = browser.get("/login/oidc")
        assert (answer.status_code, "brokers do not take" in answer.text) == (403, True), answer.text
        assert browser.get("/topics").url.path == "/login"
