"""Certificates for tests of TLS."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A key, and a certificate for 127.0.0.1 that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, SHA256())
    )
    paths = directory / "key.pem", directory / "certificate.pem"
    paths[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[1].write_bytes(certificate.public_bytes(Encoding.PEM))
    return paths


class Issued(NamedTuple):
    """A key with its certificate, and the authority's."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """The key and both certificates in one file."""
        hidden = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, self.authority))
        path.write_bytes(key + chain)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """The same, as Java's tools keep it."""
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            serialize_key_and_certificates(b"key", self.key, self.certificate, [self.authority], encryption)
        )
        return path


class Authority:
    """A certificate authority of a test."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, SHA256())
        )

    def write(self, path: Path) -> Path:
        """The certificate that vouches for the others, as PEM."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def revocation_list(self, *revoked: Issued, days: float = 1) -> bytes:
        """The list (PEM) with these certificates, of so many days from now; one of the past is out of date."""
        now = datetime.now(UTC)
        made = x509.CertificateRevocationListBuilder(self._name, now - timedelta(days=2), now + timedelta(days=days))
        for each in revoked:
            number = each.certificate.serial_number
            made = made.add_revoked_certificate(x509.RevokedCertificateBuilder(number, now - timedelta(days=1)).build())
        return made.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def issue(self, name: str, *hosts: str, days: float = 90) -> Issued:
        """A certificate for a name, valid for these hosts (127.0.0.1 without any) and so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(self._name, _name(name), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts or LOCAL]), critical=False)
            .sign(self._key, SHA256())
        )
        return Issued(key, certificate, self.certificate)


LOCAL: Final = ("127.0.0.1", "localhost")


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if host[0].isdigit() or ":" in host else x509.DNSName(host)
