"""TLS settings of one listener, with its own prefix or for all. PURE."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.broker_tls_settings import TLS
from ottla.config.setting import Setting, Value

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

PROTOCOLS: Final = ("SSL", "SASL_SSL")
"""Security protocols with TLS."""
TLS_SETTINGS: Final[Mapping[str, Setting]] = {setting.name: setting for setting in TLS}


class Store(NamedTuple):
    """Where keys or certificates are: in a file, or in PEM texts of the settings."""

    setting: str
    """What its settings begin with, for errors: `listener.name.external.ssl.keystore`."""
    type: str
    location: str | None
    password: str | None
    key: str | None
    certificates: str | None

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.location is not None or self.key is not None or self.certificates is not None

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Store({self.setting}, {self.type}, {self.location})"


class TlsSettings(NamedTuple):
    """How one listener encrypts."""

    listener: str
    key_store: Store
    key_password: str | None
    trust_store: Store
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_host_names: bool
    principal_rules: str = "DEFAULT"
    owner: str = ""
    """What errors name in place of the listener."""
    checks_revocation: bool = False
    """Whether certificates are refused that the trust store's revocation lists name."""

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"TlsSettings({self.listener}, {self.key_store}, {self.trust_store}, {self.client_auth})"


def prefix_of(listener: str) -> str:
    """What the names of a listener's own settings begin with."""
    return f"listener.name.{listener.lower()}."


def tls_settings(config: "BrokerConfig", listener: str) -> TlsSettings:
    """The settings of a listener. Raises `InvalidConfig` for a value of its own that is refused."""
    return prefixed_tls_settings(listener, prefix_of(listener), config.given, config.value)


def prefixed_tls_settings(
    listener: str, prefix: str, given: Mapping[str, str], otherwise: Callable[[str], Value]
) -> TlsSettings:
    """The settings that begin with a prefix; `otherwise` has the value of one that is not given. Raises as above."""

    def value(name: str) -> Value:
        own = given.get(prefix + name)
        return otherwise(name) if own is None else TLS_SETTINGS[name].parse(own)

    def text(name: str) -> str | None:
        found = value(name)
        return found if isinstance(found, str) and found else None

    def words(name: str) -> tuple[str, ...]:
        found = value(name)
        return found if isinstance(found, tuple) else ()

    def store(name: str, key: str | None, certificates: str) -> Store:
        has_own = any(setting.startswith(f"{prefix}{name}.") for setting in given)
        return Store(
            f"{prefix}{name}" if has_own else name,
            (text(f"{name}.type") or "JKS").upper(),
            text(f"{name}.location"),
            text(f"{name}.password"),
            None if key is None else text(f"{name}.{key}"),
            text(f"{name}.{certificates}"),
        )

    return TlsSettings(
        listener,
        store("ssl.keystore", "key", "certificate.chain"),
        text("ssl.key.password"),
        store("ssl.truststore", None, "certificates"),
        text("ssl.client.auth") or "none",
        words("ssl.enabled.protocols"),
        words("ssl.cipher.suites"),
        text("ssl.endpoint.identification.algorithm") is not None,
        text("ssl.principal.mapping.rules") or "DEFAULT",
    )
