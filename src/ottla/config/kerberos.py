"""Keys of Kerberos, as JAAS lines name them. PURE.

com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
    keyTab="/etc/ottla/kafka.keytab" principal="kafka/broker.example@EXAMPLE";
"""

from typing import Final, NamedTuple

from ottla.config.jaas import LoginModule
from ottla.errors import InvalidConfig

MODULE: Final = "Krb5LoginModule"
SERVICE_NAME: Final = "sasl.kerberos.service.name"
RULES: Final = "sasl.kerberos.principal.to.local.rules"
_FILE: Final = "file:"


class KerberosKey(NamedTuple):
    """A principal, and the file with its key."""

    principal: str
    key_table: str


class KerberosSettings(NamedTuple):
    """How a listener's clients authenticate by GSSAPI."""

    key: KerberosKey
    rules: tuple[str, ...]
    """From principals to short names."""


def kerberos_key(setting: str, module: LoginModule) -> KerberosKey:
    """The key that a login module names. Raises `InvalidConfig`, which names `setting`."""
    options = module.options
    if options.get("useTicketCache", "false").lower() == "true":
        raise InvalidConfig(f"{setting}: a broker logs in with a key table; set useKeyTab=true, not useTicketCache")
    if options.get("useKeyTab", "false").lower() != "true":
        raise InvalidConfig(f"{setting}: GSSAPI needs a key table; set useKeyTab=true, keyTab and principal")
    missing = [name for name in ("keyTab", "principal") if not options.get(name)]
    if missing:
        raise InvalidConfig(f"{setting} needs {' and '.join(missing)}")
    path = options["keyTab"]
    if path.lower().startswith(_FILE):
        path = "/" + path[len(_FILE) :].lstrip("/")
    return KerberosKey(options["principal"], path)


def service_name(setting: str, module: LoginModule, given: str | None) -> str:
    """The service that a broker logs in to. Raises `InvalidConfig` if it is not given, or in two ways that differ."""
    own = module.options.get("serviceName")
    if own and given and own != given:
        raise InvalidConfig(f"{setting} has the service name {own}, and {SERVICE_NAME} is {given}: leave one out")
    found = own or given
    if not found:
        raise InvalidConfig(f"{SERVICE_NAME} is missing: it is the first part of the principals of brokers, as `kafka`")
    return found
