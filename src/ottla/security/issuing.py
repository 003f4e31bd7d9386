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


class Issuer:
    """A new certificate authority, whose key is in memory until `write`."""

    def __init__(self, days: int) -> None:
        self._days = days
        self._now = datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Ottla development CA")
        self._authority = (
            _certificate(self._name, self._name, self._key, self._now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, SHA256())
        )

    def write(self, certificate: Path, key: Path | None = None) -> None:
        """The certificate that others trust, and the key."""
        if key is not None:
            _write(key, _pem(self._key), _SECRET)
        _write(certificate, self._authority.public_bytes(Encoding.PEM), _PUBLIC)

    def issue(self, path: Path, common_name: str, hosts: Sequence[str] = ()) -> None:
        """Write a new key and its certificates, for a client, or for a broker at these names and addresses.

        Raises ValueError for a malformed name.
        """
        own = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(self._name, _name(common_name), own, self._now, self._days)
        if hosts:
            alternatives = [_alternative(host) for host in dict.fromkeys(hosts)]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        chain = (builder.sign(self._key, SHA256()), self._authority)
        key_first = _pem(own) + b"".join(each.public_bytes(Encoding.PEM) for each in chain)
        _write(path, key_first, _SECRET)


def issue(files: Files, hosts: Sequence[str], client: str, days: int) -> None:
    """Write all files anew; keys can be read by their owner alone. Raises OSError, ValueError for a malformed name."""
    issuer = Issuer(days)
    for host in hosts:
        _alternative(host)
    _name(client)
    files.authority.parent.mkdir(parents=True, exist_ok=True)
    issuer.write(files.authority, files.authority_key)
    issuer.issue(files.broker, "broker", (*LOCAL_HOSTS, *hosts))
    issuer.issue(files.client, client)


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


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file that its owner alone can read."""
    _write(path, content, _SECRET)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as a whole: a broker may be about to read it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)
