"""SASL settings of one listener. PURE."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.config.broker_sasl_settings import SASL
from ottla.config.kerberos import MODULE, RULES, KerberosSettings, kerberos_key
from ottla.config.tls import prefix_of
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.jaas import LoginModule
    from ottla.config.setting import Value

PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
"""Security protocols with SASL."""
MECHANISMS: Final = {
    "GSSAPI": MODULE,
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
"""Mechanisms that are served, each with its login module in Kafka."""
JAAS: Final = "sasl.jaas.config"
TO_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
TO_CONTROLLERS: Final = "sasl.mechanism.controller.protocol"
LOGIN_MECHANISMS: Final = (TO_BROKERS, TO_CONTROLLERS)
"""The settings that say how this node logs in to others."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
REAUTHENTICATION: Final = "connections.max.reauth.ms"
SASL_SETTINGS: Final = {setting.name: setting for setting in SASL}
HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_USER: Final = "user_"
UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
"""Kafka's default: it believes every token, signed by nobody. Here it has to be named."""
_HANDLERS: Final = {
    HANDLER: ("OAuthBearerValidatorCallbackHandler", UNSECURED),
    LOGIN_HANDLER: ("OAuthBearerLoginCallbackHandler",),
}
_OWN: Final = {"GSSAPI": "sasl.kerberos.", "OAUTHBEARER": "sasl.oauthbearer."}
"""What the settings of one mechanism begin with."""


class TokenSettings(NamedTuple):
    """Which tokens OAUTHBEARER accepts."""

    jwks_url: str | None
    """Where the keys of the provider are; None for tokens that nobody has signed."""
    issuer: str | None
    audience: tuple[str, ...]
    user_claim: str
    scope_claim: str
    clock_skew_s: int
    refresh_s: float = 3600.0
    retry_s: float = 0.1
    longest_retry_s: float = 10.0


class SaslSettings(NamedTuple):
    """How clients of one listener authenticate."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    """Passwords by user name, for PLAIN."""
    reauthentication_ms: Mapping[str, int]
    """By mechanism: how long a login lasts; 0 for as long as its connection."""
    tokens: TokenSettings | None = None
    """For OAUTHBEARER."""
    kerberos: KerberosSettings | None = None
    """For GSSAPI."""

    def __repr__(self) -> str:
        """Without the passwords."""
        return f"SaslSettings({', '.join(self.mechanisms)})"


def sasl_settings(config: "BrokerConfig", listener: str) -> SaslSettings:
    """The settings of a listener. Raises `InvalidConfig`, which names the setting."""
    name = "sasl.enabled.mechanisms"
    own = config.given.get(prefix_of(listener) + name)
    value = config.value(name) if own is None else SASL_SETTINGS[name].parse(own)
    mechanisms = tuple(word.upper() for word in value) if isinstance(value, tuple) else ()
    unknown = [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]
    if unknown or not mechanisms:
        raise InvalidConfig(
            f"{name} of listener {listener}: {', '.join(unknown) or 'none'} is not served; {', '.join(MECHANISMS)} are"
        )
    modules = {mechanism: login_module_of(config, listener, mechanism) for mechanism in mechanisms}
    plain = modules.get("PLAIN")
    if "PLAIN" in mechanisms and plain is None:
        raise InvalidConfig(
            f"{jaas_name(listener, 'PLAIN')} is missing: PLAIN takes its users from there, as "
            '`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="...";`'
        )
    users = (
        {}
        if plain is None
        else {
            option.removeprefix(_USER): password
            for option, password in plain.options.items()
            if option.startswith(_USER)
        }
    )
    lifetimes = {name: _reauthentication_ms(config, listener, name) for name in mechanisms}
    tokens = _token_settings(config, listener) if "OAUTHBEARER" in mechanisms else None
    kerberos = _kerberos_settings(config, listener, modules["GSSAPI"]) if "GSSAPI" in mechanisms else None
    return SaslSettings(mechanisms, users, lifetimes, tokens, kerberos)


def _kerberos_settings(config: "BrokerConfig", listener: str, module: "LoginModule | None") -> KerberosSettings:
    setting = jaas_name(listener, "GSSAPI")
    if module is None:
        raise InvalidConfig(
            f"{setting} is missing: GSSAPI takes the key of this broker from there, as "
            f'`com.sun.security.auth.module.{MODULE} required useKeyTab=true keyTab="..." principal="kafka/host@A";`'
        )
    rules = sasl_value(config, listener, "GSSAPI", RULES)
    return KerberosSettings(kerberos_key(setting, module), rules if isinstance(rules, tuple) else ())


def sasl_value(config: "BrokerConfig", listener: str, mechanism: str, name: str) -> "Value":
    """A setting for a mechanism at a listener: its own, the listener's, or that for all. Raises `InvalidConfig`."""
    prefix = prefix_of(listener)
    for before in (f"{prefix}{mechanism.lower()}.", prefix):
        own = config.given.get(before + name)
        if own is not None:
            return SASL_SETTINGS[name].parse(own)
    return config.value(name)


def _token_settings(config: "BrokerConfig", listener: str) -> TokenSettings:
    prefix = prefix_of(listener)

    def value(name: str) -> "Value":
        return sasl_value(config, listener, "OAUTHBEARER", f"sasl.oauthbearer.{name}")

    def text(name: str) -> str | None:
        found = value(name)
        return found if isinstance(found, str) and found else None

    def number(name: str) -> int:
        found = value(name)
        return found if isinstance(found, int) else 0

    audience = value("expected.audience")
    handler = config.given.get(f"{prefix}oauthbearer.{HANDLER}", "").rpartition(".")[2]
    is_unsecured = handler == UNSECURED
    if not is_unsecured and text("jwks.endpoint.url") is None:
        raise InvalidConfig(
            f"listener {listener}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, the keys of the provider "
            "whose tokens it accepts. Tokens that nobody has signed are accepted if "
            f"{prefix}oauthbearer.{HANDLER} is {UNSECURED}"
        )
    url = text("jwks.endpoint.url") or ""
    return TokenSettings(
        None if is_unsecured else checked_url("sasl.oauthbearer.jwks.endpoint.url", url),
        text("expected.issuer"),
        audience if isinstance(audience, tuple) else (),
        text("sub.claim.name") or "sub",
        text("scope.claim.name") or "scope",
        number("clock.skew.seconds"),
        number("jwks.endpoint.refresh.ms") / 1000,
        number("jwks.endpoint.retry.backoff.ms") / 1000,
        number("jwks.endpoint.retry.backoff.max.ms") / 1000,
    )


def checked_url(setting: str, url: str) -> str:
    """The URL, if nobody on the way can replace or read what is there. Raises `InvalidConfig`."""
    try:
        found = urlsplit(url)
        is_fine = found.scheme == "https" and bool(found.hostname)
        is_fine |= found.scheme == "http" and found.hostname in _LOOPBACK
        is_fine |= found.scheme == "file" and not found.netloc and bool(found.path)
    except ValueError:
        is_fine = False
    if not is_fine or found.username or found.password:
        raise InvalidConfig(
            f"{setting}: it has to be an https or file URL without a password (http is for localhost only)"
        )
    return url


def is_served(name: str, text: str) -> bool:
    """Whether a setting that asks for SASL gets it; its name without the prefix of a listener."""
    if name == "sasl.enabled.mechanisms":
        return all(word.strip().upper() in MECHANISMS for word in text.split(","))
    if name in LOGIN_MECHANISMS:
        return text.strip().upper() in MECHANISMS
    if name in SASL_SETTINGS:
        return True
    mechanism, _, inner = name.partition(".")
    mechanism = mechanism.upper()
    if inner in _HANDLERS:
        return mechanism == "OAUTHBEARER" and text.rpartition(".")[2] in _HANDLERS[inner]
    return mechanism in MECHANISMS and (
        inner in (JAAS, REAUTHENTICATION) or (inner in SASL_SETTINGS and inner.startswith(_OWN.get(mechanism, JAAS)))
    )


def login_module_of(config: "BrokerConfig", listener: str, mechanism: str) -> "LoginModule | None":
    """The login module of a mechanism at a listener; None if there is none. Raises `InvalidConfig`."""
    from ottla.config.jaas import login_module

    setting = jaas_name(listener, mechanism)
    text = config.given.get(setting)
    if text is None:
        return None
    module = login_module(setting, text)
    if module.name != MECHANISMS[mechanism]:
        raise InvalidConfig(f"{setting}: {mechanism} needs the login module {MECHANISMS[mechanism]}, not {module.name}")
    return module


def jaas_name(listener: str, mechanism: str) -> str:
    """The name of that setting."""
    return f"{prefix_of(listener)}{mechanism.lower()}.{JAAS}"


def _reauthentication_ms(config: "BrokerConfig", listener: str, mechanism: str) -> int:
    prefix = prefix_of(listener)
    own = config.given.get(
        f"{prefix}{mechanism.lower()}.{REAUTHENTICATION}", config.given.get(prefix + REAUTHENTICATION)
    )
    value = config.value(REAUTHENTICATION) if own is None else SASL_SETTINGS[REAUTHENTICATION].parse(own)
    return value if isinstance(value, int) else 0
