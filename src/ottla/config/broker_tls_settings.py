"""The broker's settings about TLS that Ottla acts on; a part of `broker_settings`.

Each is read with the prefix of a listener first (`listener.name.<name>.ssl.keystore.location`): see `tls`.
"""

from typing import Final

from ottla.config.changeable import CHANGEABLE
from ottla.config.setting import Change, Kind, Limit, OneOf, Setting


def _tls(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(name, kind, default, doc, limit, CHANGEABLE.get(name, Change.READ_ONLY))


TLS: Final = (
    _tls(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether a client must show a certificate that the trust store vouches for: `required`, `requested` (one that "
        "is shown is checked) or `none`.",
        OneOf(("required", "requested", "none")),
    ),
    _tls(
        "ssl.enabled.protocols",
        Kind.LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS that are spoken.",
        OneOf(("TLSv1.2", "TLSv1.3")),
    ),
    _tls(
        "ssl.cipher.suites",
        Kind.LIST,
        "",
        "Cipher suites that are allowed, by Java's names; OpenSSL's choice if there are none. Those of TLS 1.3 can "
        "only be allowed all together.",
    ),
    _tls(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "How this broker checks the name of another broker against its certificate; empty for not at all.",
    ),
    _tls(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "Rules from the distinguished name of a client's certificate to the name of its principal, the first that "
        "matches: `RULE:pattern/replacement/` (with L or U for lower or upper case), or DEFAULT for the whole name. "
        "Patterns are those of RE2.",
    ),
    _tls(
        "ssl.keystore.type",
        Kind.STRING,
        "JKS",
        "Format of the key store: PEM or PKCS12. JKS stands for what keytool writes: PKCS12 since Java 9.",
    ),
    _tls("ssl.keystore.location", Kind.STRING, None, "File with the private key and its certificates."),
    _tls("ssl.keystore.password", Kind.PASSWORD, None, "Password of the key store, not for PEM."),
    _tls("ssl.keystore.key", Kind.PASSWORD, None, "Private key, as PEM text, in place of a file."),
    _tls("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "Its certificates, as PEM text."),
    _tls("ssl.key.password", Kind.PASSWORD, None, "Password of a private key that is encrypted."),
    _tls("ssl.truststore.type", Kind.STRING, "JKS", "Format of the trust store, as `ssl.keystore.type`."),
    _tls(
        "ssl.truststore.location",
        Kind.STRING,
        None,
        "File with the certificates that are trusted. Kafka takes those of the Java installation without one; Ottla "
        "refuses `ssl.client.auth` then, and trusts the system's for other brokers.",
    ),
    _tls("ssl.truststore.password", Kind.PASSWORD, None, "Password of the trust store, not for PEM."),
    _tls("ssl.truststore.certificates", Kind.PASSWORD, None, "Trusted certificates, as PEM text, in place of a file."),
)
