"""Key stores and trust stores: PEM texts, PEM files, PKCS12. Errors name the setting and the file, never a secret."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.tls import Store
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate, CertificateRevocationList

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_REVOCATIONS: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?(?:-----END X509 CRL-----|\Z)", re.DOTALL)
_LARGEST_STORE_BYTES: Final = 16 << 20

Fingerprint = tuple[tuple[int, int, int] | None, ...]
"""Identifies the files of some stores: another one means that a file was replaced."""


class KeyMaterial(NamedTuple):
    """A private key and the certificates that vouch for its owner, the owner's first."""

    key: "PrivateKeyTypes"
    chain: "Sequence[Certificate]"

    def __repr__(self) -> str:
        """Without the key."""
        return f"KeyMaterial({self.chain[0].subject.rfc4514_string()})"


def fingerprint(*stores: Store) -> Fingerprint:
    """Time, size and inode of each store's file; None for one that is not there."""
    return tuple(_stat(store.location) for store in stores)


def need_cryptography() -> None:
    """Raise `InvalidConfig` with the remedy if the library that reads certificates is not installed."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise InvalidConfig("TLS needs another package: install Ottla with its extra `security`") from error


def key_material(store: Store, key_password: str | None) -> KeyMaterial:
    """The key and the certificates of a key store. Raises `InvalidConfig`."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if store.location is None:
        found = _inline_key(store, key_password)
    elif store.type == "PEM":
        _refuse_password(store)
        found = _pem_key(store, _content(store), key_password)
    else:
        found = _pkcs12_key(store, _content(store))
    key, chain = found
    if not chain:
        raise InvalidConfig(f"{_where(store)} holds no certificate for its private key")
    ours, theirs = (
        each.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for each in (key.public_key(), chain[0].public_key())
    )
    if ours != theirs:
        raise InvalidConfig(f"{_where(store)}: the first certificate is not that of the private key")
    return found


def trusted_certificates(store: Store) -> "Sequence[Certificate]":
    """The certificates of a trust store, at least one. Raises `InvalidConfig`."""
    if store.location is None:
        found = _pem_certificates(store, (store.certificates or "").encode())
    elif store.type == "PEM":
        _refuse_password(store)
        found = _pem_certificates(store, _content(store))
    else:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

        content = _content(store)
        try:
            read = load_pkcs12(content, _password_bytes(store.password))
        except ValueError as error:
            raise _unreadable(store, content, error) from error
        found = [each.certificate for each in read.additional_certs]
        if read.cert is not None:
            found.append(read.cert.certificate)
    if not found:
        raise InvalidConfig(f"{_where(store)} holds no certificate")
    return found


def _stat(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def revocation_lists(store: Store) -> "list[CertificateRevocationList]":
    """The revocation lists of a trust store in PEM, perhaps none. Raises `InvalidConfig`."""
    if store.location is not None and store.type != "PEM":
        return []
    from cryptography.x509 import load_pem_x509_crl

    content = (store.certificates or "").encode() if store.location is None else _content(store)
    try:
        return [load_pem_x509_crl(found) for found in _REVOCATIONS.findall(content)]
    except ValueError as error:
        raise InvalidConfig(f"{_where(store)}: a revocation list cannot be read: {error}") from error


def _inline_key(store: Store, key_password: str | None) -> KeyMaterial:
    if store.key is None or store.certificates is None:
        raise InvalidConfig(f"{store.setting}.key and {store.setting}.certificate.chain go together: one is missing")
    if store.type != "PEM":
        raise InvalidConfig(f"{store.setting}.key is PEM: set {store.setting}.type=PEM")
    _refuse_password(store)
    text = store.key.encode()
    return KeyMaterial(_private_key(store, text, key_password), _pem_certificates(store, store.certificates.encode()))


def _pem_key(store: Store, content: bytes, key_password: str | None) -> KeyMaterial:
    return KeyMaterial(_private_key(store, content, key_password), _pem_certificates(store, content))


def _private_key(store: Store, content: bytes, key_password: str | None) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    begins = content.find(b"-----BEGIN")
    while begins >= 0 and b"PRIVATE KEY-----" not in content[begins : begins + 64]:
        begins = content.find(b"-----BEGIN", begins + 1)
    if begins < 0:
        raise InvalidConfig(f"{_where(store)} holds no private key (PEM, `-----BEGIN PRIVATE KEY-----`)")
    try:
        return load_pem_private_key(content[begins:], _password_bytes(key_password))
    except TypeError as error:
        has_password = key_password is not None
        raise InvalidConfig(
            f"{_where(store)}: the private key is "
            + ("not encrypted: leave ssl.key.password out" if has_password else "encrypted: set ssl.key.password")
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidConfig(
            f"{_where(store)}: the private key cannot be read; is ssl.key.password the right one?"
        ) from error


def _pem_certificates(store: Store, content: bytes) -> "list[Certificate]":
    from cryptography.x509 import load_pem_x509_certificates

    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise InvalidConfig(f"{_where(store)} holds no certificate (PEM, `-----BEGIN CERTIFICATE-----`)")
    try:
        return load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidConfig(f"{_where(store)}: a certificate cannot be read: {error}") from error


def _pkcs12_key(store: Store, content: bytes) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        read = load_pkcs12(content, _password_bytes(store.password))
    except ValueError as error:
        raise _unreadable(store, content, error) from error
    if read.key is None or read.cert is None:
        raise InvalidConfig(f"{_where(store)} holds no private key with its certificate")
    return KeyMaterial(read.key, [read.cert.certificate, *(each.certificate for each in read.additional_certs)])


def _content(store: Store) -> bytes:
    assert store.location is not None
    if store.key is not None or store.certificates is not None:
        raise InvalidConfig(f"{store.setting}.location and PEM texts in the settings exclude each other: leave one out")
    try:
        with Path(store.location).open("rb") as file:
            content = file.read(_LARGEST_STORE_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{_where(store)} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_STORE_BYTES:
        raise InvalidConfig(f"{_where(store)} is larger than {_LARGEST_STORE_BYTES >> 20} MiB: is it a key store?")
    return content


def _unreadable(store: Store, content: bytes, error: ValueError) -> InvalidConfig:
    if content.startswith(_JKS_MAGIC):
        return InvalidConfig(
            f"{_where(store)} is in Java's old format JKS; convert it with `keytool -importkeystore -srckeystore "
            f"{store.location} -destkeystore {store.location}.p12 -deststoretype PKCS12`, and name the new file"
        )
    if b"-----BEGIN" in content:
        return InvalidConfig(f"{_where(store)} is PEM: set {store.setting}.type=PEM")
    if "password" in str(error).lower():
        return InvalidConfig(f"{_where(store)} cannot be opened: is {store.setting}.password the right one?")
    return InvalidConfig(f"{_where(store)} is no PKCS12 file: {error}")


def _refuse_password(store: Store) -> None:
    if store.password is not None:
        raise InvalidConfig(f"{store.setting}.password is not for PEM: a key's password is ssl.key.password")


def _password_bytes(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _where(store: Store) -> str:
    return store.setting if store.location is None else f"{store.setting}.location: {store.location}"
