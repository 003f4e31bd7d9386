"""A certificate authority for development, and what it vouches for: keys and certificates in PEM files."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644
_BACKDATED: Final = timedelta(hours=1)
"""Clocks of other machines may be slow."""


class Files(NamedTuple):
    """Where everything is."""

    authority: Path
    """The certificate that brokers and clients trust."""
    authority_key: Path
    broker: Path
    """The broker's key and its certificates."""
    client: Path
    """A client's key and its certificates."""


def files_in(directory: Path) -> Files:
    """The files of a directory."""
    return Files(*(directory / name for name in ("ca.pem", "ca-key.pem", "broker.pem", "client.pem")))


def issue(files: Files, hosts: Sequence[str], client: str, days: int) -> None:
    """Write all files anew; keys can be read by their owner alone. Raises OSError, ValueError for a malformed name."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Ottla development CA")
    authority = (
        _certificate(name, name, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )

    def issued(common_name: str, alternatives: Sequence[x509.GeneralName]) -> bytes:
        own = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(name, _name(common_name), own, now, days)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return _pem(own) + b"".join(
            each.public_bytes(Encoding.PEM) for each in (builder.sign(key, SHA256()), authority)
        )

    broker = issued("broker", [_alternative(host) for host in dict.fromkeys((*LOCAL_HOSTS, *hosts))])
    own = issued(client, [])
    files.authority.parent.mkdir(parents=True, exist_ok=True)
    _write(files.authority_key, _pem(key), _SECRET)
    _write(files.authority, authority.public_bytes(Encoding.PEM), _PUBLIC)
    _write(files.broker, broker, _SECRET)
    _write(files.client, own, _SECRET)


def _certificate(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - _BACKDATED, now + timedelta(days=days)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as a whole: a broker may be about to read it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
