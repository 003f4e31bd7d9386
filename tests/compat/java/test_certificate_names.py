"""Names of certificates, as Java and Kafka's own mapper write them."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from tests.support.java_sources import compiled, java_command

from ottla.security.principals import UnnamedClient, principal_rules

KEY = ec.generate_private_key(ec.SECP256R1())
COUNTRY = NameAttribute(NameOID.COUNTRY_NAME, "DE")
ALICE = NameAttribute(NameOID.COMMON_NAME, "alice")
SALES = NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Sales")
TEXTS = (
    "Example, Inc.",
    " ends with spaces  ",
    '#<a>+"b";\\c=d/e',
    "Zoë Ünal 日本",
    "tab\tand\rreturn\r",
    "# hash",
    "a\0b",
)


def levels(*attributes: "NameAttribute[str]") -> x509.Name:
    return x509.Name([RelativeDistinguishedName([attribute]) for attribute in attributes])


NAMES = (
    levels(COUNTRY, SALES, ALICE),
    levels(ALICE, SALES, COUNTRY),
    x509.Name([RelativeDistinguishedName([COUNTRY]), RelativeDistinguishedName([ALICE, SALES])]),
    *(levels(COUNTRY, NameAttribute(NameOID.ORGANIZATION_NAME, text)) for text in TEXTS),
    levels(
        *(
            NameAttribute(kind, "x")
            for kind in (
                NameOID.STATE_OR_PROVINCE_NAME,
                NameOID.LOCALITY_NAME,
                NameOID.STREET_ADDRESS,
                NameOID.DOMAIN_COMPONENT,
                NameOID.USER_ID,
                NameOID.EMAIL_ADDRESS,
                NameOID.TITLE,
                NameOID.SURNAME,
                NameOID.DN_QUALIFIER,
                NameOID.SERIAL_NUMBER,
            )
        )
    ),
    levels(NameAttribute(ObjectIdentifier("2.999.1.16384"), "x" * 200)),
    levels(NameAttribute(NameOID.COMMON_NAME, "ascii", _ASN1Type.IA5String)),
    levels(NameAttribute(NameOID.COMMON_NAME, "123", _ASN1Type.NumericString)),
    x509.Name([]),
)
RULES = (
    "DEFAULT",
    "RULE:^CN=([^,]+).*$/$1/U, RULE:^.*OU=([^,]+),?.*$/$1-$12\\$x/L,,DEFAULT",
    "RULE:(.*)/<$1>/",
    "RULE:^CN=(.*?),.*$/a\\/b$1/",
)


def certificate(subject: x509.Name) -> x509.Certificate:
    now = datetime.now(UTC)
    issuer = levels(NameAttribute(NameOID.COMMON_NAME, "authority"))
    return (
        x509.CertificateBuilder(issuer, subject, KEY.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(KEY, SHA256())
    )


@pytest.mark.parametrize("rules", RULES)
def test_names_equal_those_of_java(tmp_path: Path, rules: str) -> None:
    classes = compiled(Path(__file__).parent / "CertificateNames.java")
    encoded = [certificate(name).public_bytes(Encoding.DER) for name in NAMES]
    paths = [tmp_path / f"{number}.der" for number in range(len(encoded))]
    for path, content in zip(paths, encoded, strict=True):
        path.write_bytes(content)
    command = java_command(classes, "CertificateNames", rules, *map(str, paths))
    expected = subprocess.run(command, capture_output=True, check=True).stdout
    principal = principal_rules(rules)
    assert b"".join(_named(principal, content) + b"\0" for content in encoded) == expected


def _named(principal: Callable[[bytes], str], content: bytes) -> bytes:
    try:
        return principal(content).removeprefix("User:").encode()
    except UnnamedClient:
        return b"(none)"
