"""How a connection is protected, from the client properties that librdkafka's users know.

A property that is not understood here and belongs to TLS or SASL is refused: a connection is never less protected than
its owner asked for.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.sansio.sasl import SCRAM_MECHANISMS, Mechanism, Plain, Scram

if TYPE_CHECKING:
    import ssl

_PROTOCOLS: Final = {  # TLS, SASL
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
_TLS: Final = frozenset(
    (
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    )
)
_SASL: Final = frozenset(("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"))
_NONCE_BYTES: Final = 24


class UnsupportedSecurity(ClientError, ValueError):
    """Properties ask for a protection that this client does not offer, or contradict one another."""


class Security(NamedTuple):
    """How connections to a cluster are protected."""

    tls: "ssl.SSLContext | None" = None
    mechanism: Callable[[], Mechanism] | None = None
    """Makes the authentication of one connection."""


PLAIN: Final = Security()


def security_of(properties: Mapping[str, str]) -> Security:
    """What `security.protocol`, `ssl.*` and `sasl.*` ask for. Raises `UnsupportedSecurity`."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise UnsupportedSecurity(f"security.protocol {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    understood = (_TLS if has_tls else frozenset()) | (_SASL if has_sasl else frozenset())
    for name in properties:
        is_used = (has_tls and "ssl." in name) or (has_sasl and name.startswith("sasl."))
        if is_used and name not in understood:
            raise UnsupportedSecurity(f"{name} is not understood here; {', '.join(sorted(understood))} are")
    return Security(_context(properties) if has_tls else None, _mechanism(properties) if has_sasl else None)


def _context(properties: Mapping[str, str]) -> "ssl.SSLContext":
    import ssl  # takes as long to load as all else

    location = properties.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=location, cadata=properties.get("ssl.ca.pem"))
        if "ssl.certificate.location" in properties:
            context.load_cert_chain(
                properties["ssl.certificate.location"],
                properties.get("ssl.key.location"),
                properties.get("ssl.key.password", ""),
            )
    except OSError as error:
        raise UnsupportedSecurity(f"the certificates or keys of ssl.* cannot be used: {error}") from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _mechanism(properties: Mapping[str, str]) -> Callable[[], Mechanism]:
    name = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
    if name != Plain.name and name not in SCRAM_MECHANISMS:
        known = ", ".join((Plain.name, *sorted(SCRAM_MECHANISMS)))
        raise UnsupportedSecurity(f"SASL mechanism {name} is not spoken here; {known} are: set sasl.mechanism")
    try:
        user, password = properties["sasl.username"], properties["sasl.password"]
    except KeyError as missing:
        raise UnsupportedSecurity(f"SASL mechanism {name} needs {missing.args[0]}") from None
    return mechanism_of(name, user, password)


def mechanism_of(name: str, user: str, password: str) -> Callable[[], Mechanism]:
    """What makes the authentication of each connection, by PLAIN or a mechanism of `SCRAM_MECHANISMS`."""
    if name == Plain.name:
        return lambda: Plain(user, password)
    return lambda: Scram(name, user, password, secrets.token_urlsafe(_NONCE_BYTES))
