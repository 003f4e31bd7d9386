"""SASL settings of one listener. PURE."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.broker_sasl_settings import SASL
from ottla.config.tls import prefix_of
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.jaas import LoginModule

PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
"""Security protocols with SASL."""
MECHANISMS: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
"""Mechanisms that are served, each with its login module in Kafka."""
JAAS: Final = "sasl.jaas.config"
REAUTHENTICATION: Final = "connections.max.reauth.ms"
SASL_SETTINGS: Final = {setting.name: setting for setting in SASL}
_USER: Final = "user_"


class Login(NamedTuple):
    """The name and the password with which this broker logs in to others."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Login({self.mechanism}, {self.user})"


class SaslSettings(NamedTuple):
    """How clients of one listener authenticate."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    """Passwords by user name, for PLAIN."""
    reauthentication_ms: Mapping[str, int]
    """By mechanism: how long a login lasts; 0 for as long as its connection."""

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
    modules = {mechanism: _module(config, listener, mechanism) for mechanism in mechanisms}
    plain = modules.get("PLAIN")
    if "PLAIN" in mechanisms and plain is None:
        raise InvalidConfig(
            f"{_jaas_name(listener, 'PLAIN')} is missing: PLAIN takes its users from there, as "
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
    return SaslSettings(mechanisms, users, {name: _reauthentication_ms(config, listener, name) for name in mechanisms})


def login(config: "BrokerConfig", listener: str) -> Login:
    """How this broker logs in to that listener of other brokers. Raises `InvalidConfig`."""
    mechanism = str(config.value("sasl.mechanism.inter.broker.protocol")).upper()
    if mechanism not in MECHANISMS:
        raise InvalidConfig(
            f"sasl.mechanism.inter.broker.protocol: {mechanism} is not supported; {', '.join(MECHANISMS)} are"
        )
    module = _module(config, listener, mechanism)
    if module is None or not {"username", "password"} <= module.options.keys():
        raise InvalidConfig(
            f"{_jaas_name(listener, mechanism)} needs username and password, to log in to other brokers"
        )
    return Login(mechanism, module.options["username"], module.options["password"])


def is_served(name: str, text: str) -> bool:
    """Whether a setting that asks for SASL gets it; its name without the prefix of a listener."""
    if name in ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"):
        return all(word.strip().upper() in MECHANISMS for word in text.split(","))
    if name in SASL_SETTINGS:
        return True
    mechanism, _, inner = name.partition(".")
    return mechanism.upper() in MECHANISMS and inner in (JAAS, REAUTHENTICATION)


def _module(config: "BrokerConfig", listener: str, mechanism: str) -> "LoginModule | None":
    from ottla.config.jaas import login_module

    setting = _jaas_name(listener, mechanism)
    text = config.given.get(setting)
    if text is None:
        return None
    module = login_module(setting, text)
    if module.name != MECHANISMS[mechanism]:
        raise InvalidConfig(f"{setting}: {mechanism} needs the login module {MECHANISMS[mechanism]}, not {module.name}")
    return module


def _jaas_name(listener: str, mechanism: str) -> str:
    return f"{prefix_of(listener)}{mechanism.lower()}.{JAAS}"


def _reauthentication_ms(config: "BrokerConfig", listener: str, mechanism: str) -> int:
    prefix = prefix_of(listener)
    own = config.given.get(
        f"{prefix}{mechanism.lower()}.{REAUTHENTICATION}", config.given.get(prefix + REAUTHENTICATION)
    )
    value = config.value(REAUTHENTICATION) if own is None else SASL_SETTINGS[REAUTHENTICATION].parse(own)
    return value if isinstance(value, int) else 0
