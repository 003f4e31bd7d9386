"""Java's key stores as PEM texts: PEM files, and PKCS12, which keytool has written since Java 9."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.client.properties import PropertiesProblem

_OLD_JKS: Final = b"\xfe\xed\xfe\xed"
_PEM: Final = b"-----BEGIN"
_LARGEST_STORE_BYTES: Final = 16 << 20


def with_stores_read(properties: Mapping[str, Any], *, keeps_pkcs12: bool) -> dict[str, Any]:
    """The properties with `ssl.ca.*`, `ssl.key.*` and `ssl.certificate.*` in the place of Java's stores.

    The content of a file decides its format, not `ssl.*store.type`. `keeps_pkcs12`: leave a PKCS12 key store as it is,
    for librdkafka. Raises PropertiesProblem for a file that cannot be read.
    """
    found = dict(properties)
    trusted = _taken(found, "ssl.truststore")
    if trusted is not None:
        location, content, password = trusted
        if _PEM in content:
            found.setdefault("ssl.ca.location", location)
        else:
            _, _, others = _pkcs12("ssl.truststore", location, content, password)
            found.setdefault("ssl.ca.pem", others)
    own = _taken(found, "ssl.keystore")
    if own is not None:
        location, content, password = own
        if _PEM in content:
            found.setdefault("ssl.certificate.location", location)
            found.setdefault("ssl.key.location", location)
        else:
            key, chain, _ = _pkcs12("ssl.keystore", location, content, password)
            if not key:
                raise PropertiesProblem(f"ssl.keystore.location: {location} holds no private key with its certificate")
            found.pop("ssl.key.password", None)
            if keeps_pkcs12:
                found |= {"ssl.keystore.location": location, "ssl.keystore.password": password or ""}
            else:
                found.setdefault("ssl.key.pem", key)
                found.setdefault("ssl.certificate.pem", chain)
    return found


def _taken(properties: dict[str, Any], store: str) -> tuple[str, bytes, str | None] | None:
    """Location, content and password of a store, whose properties are taken out; None if there is none."""
    properties.pop(f"{store}.type", None)
    password = properties.pop(f"{store}.password", None)
    location = properties.pop(f"{store}.location", None)
    if location is None:
        return None
    try:
        with Path(location).open("rb") as file:
            content = file.read(_LARGEST_STORE_BYTES + 1)
    except OSError as error:
        raise PropertiesProblem(f"{store}.location: {location} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_STORE_BYTES:
        raise PropertiesProblem(f"{store}.location: {location} is too large for a key store")
    return location, content, password


def _pkcs12(store: str, location: str, content: bytes, password: str | None) -> tuple[str, str, str]:
    """As PEM: the private key, its certificates, and all certificates. Raises PropertiesProblem."""
    if content.startswith(_OLD_JKS):
        raise PropertiesProblem(
            f"{store}.location: {location} is in Java's old format JKS; convert it with `keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12`, and name the new file"
        )
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise PropertiesProblem(
            f"{store}.location: a PKCS12 file is read by another package: install Ottla with its extra `security`, or "
            "give PEM files"
        ) from error
    try:
        read = load_pkcs12(content, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower():
            raise PropertiesProblem(
                f"{store}.location: {location} cannot be opened: is {store}.password the right one?"
            ) from error
        raise PropertiesProblem(f"{store}.location: {location} is neither PEM nor PKCS12: {error}") from error
    own = [] if read.cert is None else [read.cert.certificate]
    every = [*own, *(each.certificate for each in read.additional_certs)]
    texts = "".join(each.public_bytes(Encoding.PEM).decode() for each in every)
    if read.key is None:
        return "", "", texts
    key = read.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return key, texts, texts
