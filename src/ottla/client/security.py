"""How a connection is protected, from client properties by Java's names or librdkafka's.

A property that is not understood here and belongs to TLS or SASL is refused: a connection is never less protected than
its owner asked for.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.properties import ENDPOINT, TOKEN_LOGIN, PropertiesProblem, translated
from ottla.client.sansio.sasl import SCRAM_MECHANISMS, Bearer, Mechanism, Plain, Scram
from ottla.secret_files import secret_file

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
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    )
)
_SASL: Final = frozenset(
    (
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        ENDPOINT,
    )
)
_NONCE_BYTES: Final = 24
_MECHANISMS: Final = (Plain.name, *sorted(SCRAM_MECHANISMS), Bearer.name)


class UnsupportedSecurity(ClientError, ValueError):
    """Properties ask for a protection that this client does not offer, or contradict one another."""


class NotSpoken(UnsupportedSecurity):
    """Properties of a protection that librdkafka may offer, and this client does not."""


class Security(NamedTuple):
    """How connections to a cluster are protected."""

    tls: "ssl.SSLContext | None" = None
    mechanism: Callable[[], Mechanism] | None = None
    """Makes the authentication of one connection. May block, and raise `AuthenticationFailed`, where `waits`."""
    waits: bool = False
    """Whether a login needs a token of an identity provider."""


PLAIN: Final = Security()


def security_of(given: Mapping[str, Any]) -> Security:
    """What `security.protocol`, `ssl.*` and `sasl.*` ask for. Raises `UnsupportedSecurity`.

    `oauth_cb`, if given, supplies tokens as in confluent-kafka: it takes a text, and returns a token and its end in
    seconds since 1970.
    """
    supply = given.get("oauth_cb")
    properties: dict[str, str] = {name: value for name, value in given.items() if name != "oauth_cb"}
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise UnsupportedSecurity(f"security.protocol {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    if not has_tls and not has_sasl:
        return PLAIN
    try:
        found = translated(properties)
        if has_tls and any(name.startswith(("ssl.truststore.", "ssl.keystore.")) for name in found):
            from ottla.client.stores import with_stores_read

            found = with_stores_read(found, keeps_pkcs12=False)
    except PropertiesProblem as problem:
        raise UnsupportedSecurity(str(problem)) from problem
    understood = (_TLS if has_tls else frozenset()) | (_SASL if has_sasl else frozenset())
    for name in found:
        is_used = (has_tls and name.startswith("ssl.")) or (has_sasl and name.startswith("sasl."))
        if is_used and name not in understood:
            raise NotSpoken(f"{name} is not understood here; {', '.join(sorted(understood))} are")
    context = _context(found) if has_tls else None
    if not has_sasl:
        return Security(context)
    name = found.get("sasl.mechanism", found.get("sasl.mechanisms", "GSSAPI")).upper()
    if name == Bearer.name and supply is not None:
        return Security(context, lambda: Bearer(supply("")[0]), waits=True)
    return Security(context, _mechanism(name, found), name == Bearer.name)


def is_spoken(properties: Mapping[str, str]) -> bool:
    """Whether the names of these properties, as from `translated`, ask for nothing that raises `NotSpoken`. PURE."""
    has_tls, has_sasl = _PROTOCOLS.get(properties.get("security.protocol", "plaintext").lower(), (False, False))
    stores = ("ssl.truststore.", "ssl.keystore.")
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
    return (not has_sasl or mechanism in _MECHANISMS) and not any(
        (has_tls and name.startswith("ssl.") and name not in _TLS and not name.startswith(stores))
        or (has_sasl and name.startswith("sasl.") and name not in _SASL)
        for name in properties
    )


def is_of_security(name: str) -> bool:
    """Whether a property belongs to the protection of connections."""
    return name.startswith(("ssl.", "sasl.", "https.ca.")) or name in (
        "security.protocol",
        "enable.ssl.certificate.verification",
        TOKEN_LOGIN,
    )


def _context(properties: Mapping[str, str]) -> "ssl.SSLContext":
    import ssl  # takes as long to load as all else

    location = properties.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=location, cadata=properties.get("ssl.ca.pem"))
        # as librdkafka and Java: any certificate that was given is trusted, not only those that have signed themselves
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        password = properties.get("ssl.key.password", "")
        if "ssl.certificate.location" in properties:
            chain = properties["ssl.certificate.location"]
            context.load_cert_chain(chain, properties.get("ssl.key.location"), password)
        elif "ssl.certificate.pem" in properties:
            texts = f"{properties.get('ssl.key.pem', '')}\n{properties['ssl.certificate.pem']}"
            with secret_file(texts.encode()) as path:
                context.load_cert_chain(path, None, password)
    except (OSError, ValueError) as error:
        raise UnsupportedSecurity(f"the certificates or keys of ssl.* cannot be used: {error}") from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _mechanism(name: str, properties: Mapping[str, str]) -> Callable[[], Mechanism]:
    if name not in _MECHANISMS:
        known = ", ".join(_MECHANISMS)
        raise NotSpoken(f"SASL mechanism {name} is not spoken here; {known} are: set sasl.mechanism")
    if name == Bearer.name:
        from ottla.client.tokens import TokenSource

        try:
            source = TokenSource(properties)
        except PropertiesProblem as problem:
            raise UnsupportedSecurity(str(problem)) from problem
        return lambda: Bearer(source.token().text)
    try:
        user, password = properties["sasl.username"], properties["sasl.password"]
    except KeyError as missing:
        raise UnsupportedSecurity(f"SASL mechanism {name} needs {missing.args[0]}") from None
    return mechanism_of(name, user, password, is_token=properties.get(TOKEN_LOGIN, "").lower() == "true")


def mechanism_of(name: str, user: str, password: str, *, is_token: bool = False) -> Callable[[], Mechanism]:
    """What makes the authentication of each connection, by PLAIN or a mechanism of `SCRAM_MECHANISMS`."""
    if name == Plain.name:
        return lambda: Plain(user, password)
    return lambda: Scram(name, user, password, secrets.token_urlsafe(_NONCE_BYTES), is_token=is_token)
