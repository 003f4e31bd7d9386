"""The command line, and `ottla.admin`, over every protocol and mechanism, with wrong passwords and certificates too."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.certificates import Authority
from tests.support.identity_provider import IdentityProvider

from ottla.admin import Admin, AsyncAdmin, AuthenticationFailed
from ottla.testing import Broker

MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture(scope="module")
def broker(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = provider.write(tmp_path_factory.mktemp("keys") / "keys.json")
    config = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule"),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.expected.audience": "ottla",
        "delegation.token.secret.key": "a secret of tests",
    }
    alice = ["all topic *", "all group *", "all transactional-id *", "all cluster kafka-cluster"]
    with Broker(tls=True, users={"alice": "wonder, land"}, acls={"alice": alice}, config=config) as running:
        yield running


def write(path: Path, **properties: str) -> str:
    """A properties file; underscores for dots."""
    lines = (f"{name.replace('_', '.')}={value}\n" for name, value in properties.items())
    path.write_text("".join(lines))
    return str(path)


def java(broker: Broker, **properties: str) -> dict[str, str]:
    given = {"security_protocol": "SASL_SSL", "ssl_truststore_type": "PEM"}
    return {**given, "ssl_truststore_location": broker.client_config("alice")["ssl.ca.location"], **properties}


def jaas(module: str, **options: str) -> str:
    return f"{MODULES}.{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


def test_every_group_of_commands_connects(broker: Broker, tmp_path: Path) -> None:
    line = jaas("scram.ScramLoginModule", username="alice", password="wonder, land")
    given = java(broker, sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=line)
    config = ("--command-config", write(tmp_path / "alice.properties", **given))
    ottla = OttlaProgram(broker.bootstrap)
    ottla("topic", "create", "orders", *config)
    ottla("produce", "orders", *config, stdin="one pear\n")
    assert "one pear" in ottla("consume", "orders", "--from-beginning", "--exit-at-end", "--group", "g", *config).stdout
    for command in (
        ("group", "describe", "g"),
        ("share", "list"),
        ("txn", "list"),
        ("config", "get", "topic", "orders"),
        ("streams", "list"),
        ("cluster", "info"),
        ("telemetry", "subscriptions"),
        ("acl", "list"),
        ("perf", "produce", "orders", "--records", "10"),
    ):
        done = ottla(*command, *config)
        assert "wonder" not in done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "token"])
def test_every_mechanism(broker: Broker, provider: IdentityProvider, tmp_path: Path, mechanism: str) -> None:
    if mechanism == "OAUTHBEARER":
        token = tmp_path / "token"
        token.write_text(provider.token("alice"))
        properties = java(
            broker,
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=jaas("oauthbearer.OAuthBearerLoginModule"),
            sasl_oauthbearer_token_endpoint_url=token.as_uri(),
        )
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        line = jaas(module, username="alice", password="wonder, land")
        properties = java(broker, sasl_mechanism=mechanism, sasl_jaas_config=line)
    if mechanism == "token":
        with Admin(broker.bootstrap, properties=broker.client_config("alice")) as admin:
            made = admin.create_delegation_token()
        line = jaas("scram.ScramLoginModule", username=made.token_id, password=made.secret, tokenauth="true")
        properties = java(broker, sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=line)
    config = ("--command-config", write(tmp_path / "client.properties", **properties))
    ottla = OttlaProgram(broker.bootstrap)
    ottla("produce", f"by-{mechanism}", "--create", *config, stdin="one pear\n")
    assert ottla("consume", f"by-{mechanism}", "--from-beginning", "--exit-at-end", *config).stdout == "one pear\n"
    of_admin = {name.replace("_", "."): value for name, value in properties.items()}
    with Admin(broker.bootstrap, properties=of_admin) as admin:
        assert admin.list_transactions() == []

    async def asynchronously() -> None:
        async with AsyncAdmin(broker.bootstrap, properties=of_admin) as admin:
            assert await admin.list_transactions() == []

    asyncio.run(asynchronously())


def test_what_is_wrong_is_said_in_one_sentence(broker: Broker, tmp_path: Path) -> None:
    ottla = OttlaProgram(broker.bootstrap)
    right = broker.client_config("alice", mechanism="PLAIN")
    del right["bootstrap.servers"]
    strange = str(Authority().write(tmp_path / "strange.pem"))
    for changed, sentence in (
        ({"sasl.password": "wrong"}, "are user name and password (or token) in --command-config the right ones?"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "nobody"}, "does not authenticate this client"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"ssl.ca.location": strange}, "its certificate is not trusted"),
        ({"ssl.ca.location": "/nowhere.pem"}, "cannot be used"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "security.protocol"),
        ({"security.protocol": "PLAINTEXT"}, "security.protocol"),
    ):
        properties = {name.replace(".", "_"): value for name, value in {**right, **changed}.items()}
        config = write(tmp_path / "wrong.properties", **properties)
        done = ottla("topic", "list", "--request-timeout", "5", "--command-config", config, code=1)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        assert sentence in lines[0]
        assert "wonder" not in lines[0]
    with pytest.raises(AuthenticationFailed), Admin(broker.bootstrap, properties={**right, "sasl.password": "x"}) as a:
        a.list_transactions()


def test_a_client_without_a_certificate_learns_that_it_needs_one(tmp_path: Path) -> None:
    with Broker(tls="required", acls={"alice": ["describe cluster kafka-cluster"]}) as broker:
        given = broker.client_config("alice")
        ottla = OttlaProgram(broker.bootstrap)
        names = ("security.protocol", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
        options = [part for name in names for part in ("-X", f"{name}={given[name]}")]
        ottla("topic", "list", *options)
        done = ottla("topic", "list", *options[:4], code=1)
        assert "a certificate of this client" in done.stderr
        assert "set ssl.certificate.location" in done.stderr
        assert len(done.stderr.splitlines()) == 1
