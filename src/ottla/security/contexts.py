"""OpenSSL's contexts made of a listener's settings."""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple

from ottla.config.tls import TlsSettings
from ottla.errors import InvalidConfig
from ottla.secret_files import secret_file
from ottla.security.stores import KeyMaterial, key_material, need_cryptography, revocation_lists, trusted_certificates

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_OF_TLS_13: Final = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
_OF_TLS_12: Final = {
    f"TLS_{exchange.replace('-', '_')}_WITH_{suite}": f"{exchange}-{name}"
    for exchange in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")
    for suite, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Those of TLS 1.2 with forward secrecy and authenticated encryption; others are not offered."""


_NO_LISTS: Final = "revoked certificates cannot be refused without a revocation list (PEM) in the trust store"


class Made(NamedTuple):
    """A context, and when the first of its own certificates expires."""

    context: ssl.SSLContext
    expires: datetime | None


def server_context(settings: TlsSettings) -> Made:
    """For a listener. Reads files; raises `InvalidConfig`, which names the listener."""
    need_cryptography()
    with _naming(settings):
        if not settings.key_store.is_given:
            raise InvalidConfig("it needs a key and a certificate: set ssl.keystore.location or ssl.keystore.key")
        context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.client_auth != "none":
            if not settings.trust_store.is_given:
                raise InvalidConfig(
                    f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location or "
                    "ssl.truststore.certificates: the certificates that vouch for clients"
                )
            _trust(context, settings)
        return Made(context, _present(context, key_material(settings.key_store, settings.key_password)))


def client_context(settings: TlsSettings) -> Made:
    """For connections to the same listener of other brokers. Raises as `server_context`."""
    need_cryptography()
    with _naming(settings):
        context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
        context.check_hostname = settings.checks_host_names
        expires = None
        if settings.key_store.is_given:
            expires = _present(context, key_material(settings.key_store, settings.key_password))
        if settings.trust_store.is_given:
            _trust(context, settings)
        elif settings.checks_revocation:
            raise InvalidConfig(_NO_LISTS)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return Made(context, expires)


@contextmanager
def _naming(settings: TlsSettings) -> Iterator[None]:
    owner = settings.owner or f"listener {settings.listener}"
    try:
        yield
    except InvalidConfig as problem:
        raise InvalidConfig(f"{owner}: {problem}") from problem
    except ssl.SSLError as problem:
        raise InvalidConfig(f"{owner}: OpenSSL refuses its settings: {problem}") from problem


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    enabled: Sequence[ssl.TLSVersion] = [_VERSIONS[name] for name in settings.enabled_protocols]
    if not enabled:
        raise InvalidConfig("ssl.enabled.protocols names no version of TLS")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Java trusts any certificate of its trust store, not only those that have signed themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.cipher_suites:
        enabled = _limit_ciphers(context, settings.cipher_suites, enabled)
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    return context


def _limit_ciphers(
    context: ssl.SSLContext, suites: Sequence[str], enabled: Sequence[ssl.TLSVersion]
) -> Sequence[ssl.TLSVersion]:
    """Allow these suites alone; returns the versions that have one. Python cannot choose among those of TLS 1.3."""
    unknown = [suite for suite in suites if suite not in _OF_TLS_12 and suite not in _OF_TLS_13]
    if unknown:
        known = ", ".join((*sorted(_OF_TLS_13), *_OF_TLS_12))
        raise InvalidConfig(f"ssl.cipher.suites: {', '.join(unknown)} is not offered; offered are {known}")
    of_13 = _OF_TLS_13.intersection(suites)
    if of_13 and of_13 != _OF_TLS_13 and ssl.TLSVersion.TLSv1_3 in enabled:
        raise InvalidConfig(
            f"ssl.cipher.suites: of TLS 1.3 all suites can be allowed ({', '.join(sorted(_OF_TLS_13))}), or none; "
            "name all of them, or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    of_12 = [_OF_TLS_12[suite] for suite in suites if suite in _OF_TLS_12]
    if of_12:
        context.set_ciphers(":".join(of_12))
    left = [
        version
        for version in enabled
        if (version is ssl.TLSVersion.TLSv1_2 and of_12) or (version is ssl.TLSVersion.TLSv1_3 and of_13)
    ]
    if not left:
        raise InvalidConfig("ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols")
    return left


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Trust these certificates. Revocation lists beside them have to vouch for each certificate that is shown."""
    from cryptography.hazmat.primitives.serialization import Encoding

    certificates, lists = trusted_certificates(settings.trust_store), revocation_lists(settings.trust_store)
    if settings.checks_revocation and not lists:
        raise InvalidConfig(_NO_LISTS)
    content = [each.public_bytes(Encoding.PEM) for each in certificates]
    content += [each.public_bytes(Encoding.PEM) for each in lists]
    with secret_file(b"".join(content)) as path:
        context.load_verify_locations(path)  # from a file, since OpenSSL takes no revocation list from memory
    if lists:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _present(context: ssl.SSLContext, material: KeyMaterial) -> datetime:
    """Show these certificates to the other end; returns when the first of them expires."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = material.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with secret_file(key + b"".join(each.public_bytes(Encoding.PEM) for each in material.chain)) as path:
        context.load_cert_chain(path)
    return min(each.not_valid_after_utc for each in material.chain)
