"""Client properties by the names of Java's clients and of librdkafka."""

from pathlib import Path

import pytest
from tests.support.certificates import Authority

from ottla.client.properties import (
    TOKEN_LOGIN,
    PropertiesProblem,
    hidden,
    library_settings,
    translated,
)
from ottla.client.security import NotSpoken, UnsupportedSecurity, security_of

MODULES = "org.apache.kafka.common.security"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def test_java_names_become_librdkafkas() -> None:
    assert translated(
        {
            "fetch.max.wait.ms": "7",
            "key.serializer": "x",
            "ssl.protocol": "TLSv1.3",
            "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
            "ssl.truststore.certificates": "PEM",
            "ssl.endpoint.identification.algorithm": "",
            "acks": "1",
        }
    ) == {
        "fetch.wait.max.ms": "7",
        "ssl.ca.pem": "PEM",
        "ssl.endpoint.identification.algorithm": "none",
        "acks": "1",
    }
    both = {"fetch.max.wait.ms": "7", "fetch.wait.max.ms": "9"}
    assert translated(both) == {"fetch.wait.max.ms": "9"}


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_name_and_password_are_taken_out_of_javas_line(module: str) -> None:
    line = rf"""{MODULES}.{module} required username='ann' password="a \"b\\c;" ;"""
    assert translated({"sasl.jaas.config": line}) == {"sasl.username": "ann", "sasl.password": 'a "b\\c;'}
    assert translated({"sasl.jaas.config": line, "sasl.username": "bob"})["sasl.username"] == "bob"


def test_a_delegation_token_is_known_by_javas_line_and_is_not_for_librdkafka() -> None:
    line = f'{MODULES}.scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    found = translated({"sasl.jaas.config": line})
    assert found == {"sasl.username": "id", "sasl.password": "hmac", TOKEN_LOGIN: "true"}
    assert library_settings(found) == {"sasl.username": "id", "sasl.password": "hmac"}
    protocol = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    mechanism = security_of({**protocol, **found}).mechanism
    assert mechanism is not None
    first = mechanism().respond(None)
    assert first is not None
    assert first.endswith(b",tokenauth=true")


def test_client_credentials_and_token_files() -> None:
    line = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId='me' clientSecret='s3' scope='kafka';"
    java = {
        "sasl.jaas.config": line,
        ENDPOINT: "https://id.example/token",
        "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
    }
    assert translated(java) == {
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.method": "oidc",
        ENDPOINT: "https://id.example/token",
    }
    from_file = library_settings({ENDPOINT: "file:///run/token", "sasl.mechanism": "OAUTHBEARER"})
    assert callable(from_file.pop("oauth_cb"))
    assert from_file == {"sasl.mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"sasl.jaas.config": "something else"}, "is not a JAAS configuration"),
        ({"sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="a";'}, "no username and password"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, r"sasl\.kerberos\.\*"),
        (
            {"sasl.jaas.config": "x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub='a';"},
            "asks for unsigned tokens",
        ),
        ({"sasl.login.callback.handler.class": "com.example.Login"}, "only Java loads"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "cannot be chosen here"),
    ],
)
def test_what_cannot_be_done_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(PropertiesProblem, match=problem):
        translated(properties)


def test_secrets_are_hidden() -> None:
    shown = hidden({"kafka.sasl.password": "x", "sasl.jaas.config": "x", "ssl.key.password": "x", "acks": "1"})
    assert list(shown.values()) == ["[hidden]", "[hidden]", "[hidden]", "1"]


def test_java_key_stores(tmp_path: Path) -> None:
    authority = Authority()
    issued = authority.issue("alice")
    pkcs12 = issued.write_pkcs12(tmp_path / "alice.p12", "changeit")
    pem = issued.write_pem(tmp_path / "alice.pem")
    stores = {
        "ssl.truststore.location": str(pkcs12),
        "ssl.truststore.password": "changeit",
        "ssl.truststore.type": "JKS",  # what Java calls PKCS12 as well
        "ssl.keystore.location": str(pkcs12),
        "ssl.keystore.password": "changeit",
    }
    found = library_settings(stores)
    assert found.pop("ssl.ca.pem").count("BEGIN CERTIFICATE") == 2
    assert found == {"ssl.keystore.location": str(pkcs12), "ssl.keystore.password": "changeit"}
    assert security_of({"security.protocol": "SSL", **stores}).tls is not None
    in_pem = {"ssl.keystore.location": str(pem), "ssl.truststore.location": str(pem)}
    assert library_settings(in_pem) == {
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
        "ssl.ca.location": str(pem),
    }
    assert security_of({"security.protocol": "SSL", **in_pem}).tls is not None
    with pytest.raises(PropertiesProblem, match=r"is ssl\.keystore\.password the right one"):
        library_settings({**stores, "ssl.keystore.password": "wrong"})
    with pytest.raises(UnsupportedSecurity, match="cannot be read: No such file"):
        security_of({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.jks"})
    old = tmp_path / "old.jks"
    old.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(PropertiesProblem, match="keytool -importkeystore"):
        library_settings({"ssl.truststore.location": str(old)})


def test_what_librdkafka_may_speak_is_told_from_what_is_wrong() -> None:
    with pytest.raises(NotSpoken):
        security_of({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
    with pytest.raises(UnsupportedSecurity, match=r"needs sasl\.password") as wrong:
        security_of({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"})
    assert not isinstance(wrong.value, NotSpoken)
