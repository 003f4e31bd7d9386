"""Names of certificates and rules that shorten them; tests/compat/java compares them with Java's."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.errors import InvalidConfig
from ottla.security.principals import UnnamedClient, distinguished_name, principal_rules

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(common_name: str, kind: _ASN1Type = _ASN1Type.UTF8String) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name, kind)])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(name, name, KEY.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(KEY, SHA256())
        .public_bytes(Encoding.DER)
    )


def test_a_text_of_two_bytes_a_letter_is_read_as_java_18_does() -> None:
    assert distinguished_name(certificate("Zoë", _ASN1Type.BMPString)) == "CN=Zoë"


def test_the_first_rule_that_matches_gives_the_name() -> None:
    principal = principal_rules("RULE:^CN=(a.*)$/$1/U, RULE:^CN=(b[^,]*)$/user-$1/,")
    assert principal(certificate("alice")) == "User:ALICE"
    assert principal(certificate("bob")) == "User:user-bob"
    with pytest.raises(UnnamedClient, match="CN=carol"):
        principal(certificate("carol"))


def test_a_line_end_in_a_name_escapes_no_rule() -> None:
    with pytest.raises(UnnamedClient):
        principal_rules("RULE:^CN=([^,]+)$/$1/")(certificate("alice\nbob"))


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a/b",
        "RULE:a/b/X",
        "alice",
        "DEFAULT RULE:a/b/",
        "RULE:(/b/",
        "RULE:(?=a)/b/",
        r"RULE:(a)\1/b/",
        "RULE:a/$/",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        principal_rules(rules)


def test_an_exploding_expression_does_not_explode() -> None:
    principal = principal_rules("RULE:^CN=(a+)+$/$1/,DEFAULT")
    name = certificate("a" * 60 + "b")
    began = time.process_time()
    assert principal(name).endswith("ab")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("content", [b"", b"\x30", b"\x30\x80", b"\x30\x03\x30\x01\x00", b"\x30\x84\xff\xff\xff\xff"])
def test_what_is_no_certificate_has_no_name(content: bytes) -> None:
    with pytest.raises(UnnamedClient):
        distinguished_name(content)
