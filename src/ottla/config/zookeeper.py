"""Protection of a broker's connections with ZooKeeper, and of its nodes there. PURE."""

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config import kerberos
from ottla.config.jaas import login_module
from ottla.config.logins import KerberosLoginSettings, PasswordLogin
from ottla.config.tls import Store, TlsSettings
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

JAAS: Final = "zookeeper.sasl.jaas.config"
DIGEST: Final = "DIGEST-MD5"
_DIGEST_MODULE: Final = "DigestLoginModule"
_SERVICE: Final = "zookeeper"


class ZooKeeperSecurity(NamedTuple):
    """TLS and login of a session with ZooKeeper."""

    tls: TlsSettings | None = None
    login: PasswordLogin | KerberosLoginSettings | None = None
    sets_acls: bool = False
    """Whether what is created belongs to its creator."""


def zookeeper_security(config: "BrokerConfig") -> ZooKeeperSecurity:
    """What the settings ask for. Raises `InvalidConfig` for what cannot be had."""
    tls = _tls(config) if config.zookeeper_ssl_client_enable else None
    login = None if config.zookeeper_sasl_jaas_config is None else _login(config.zookeeper_sasl_jaas_config)
    if config.zookeeper_set_acl and login is None and (tls is None or not tls.key_store.is_given):
        raise InvalidConfig(
            f"zookeeper.set.acl needs a login at ZooKeeper: set {JAAS}, or zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location"
        )
    return ZooKeeperSecurity(tls, login, config.zookeeper_set_acl)


def _login(line: str) -> PasswordLogin | KerberosLoginSettings:
    module = login_module(JAAS, line)
    if module.name == kerberos.MODULE:
        return KerberosLoginSettings(kerberos.kerberos_key(JAAS, module), module.options.get("serviceName") or _SERVICE)
    if module.name != _DIGEST_MODULE:
        raise InvalidConfig(f"{JAAS} needs the login module {_DIGEST_MODULE} or {kerberos.MODULE}, not {module.name}")
    if not module.options.get("username") or not module.options.get("password"):
        raise InvalidConfig(f"{JAAS} needs username and password")
    return PasswordLogin(DIGEST, module.options["username"], module.options["password"])


def _tls(config: "BrokerConfig") -> TlsSettings:
    def store(name: str, location: str | None, password: str | None, kind: str | None) -> Store:
        found = (kind or ("PEM" if (location or "").lower().endswith(".pem") else "JKS")).upper()
        return Store(f"zookeeper.ssl.{name}", found, location, None if found == "PEM" else password, None, None)

    key_store = store(
        "keystore",
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_keystore_password,
        config.zookeeper_ssl_keystore_type,
    )
    trust_store = store(
        "truststore",
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_truststore_password,
        config.zookeeper_ssl_truststore_type,
    )
    return TlsSettings(
        "",
        key_store,
        config.zookeeper_ssl_keystore_password or None if key_store.type == "PEM" else None,
        trust_store,
        "none",
        config.zookeeper_ssl_enabled_protocols,
        config.zookeeper_ssl_cipher_suites,
        bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        owner="ZooKeeper",
        checks_revocation=config.zookeeper_ssl_crl_enable,
    )
