"""How a node logs in to the listeners between brokers and of controllers: by password, key table, or token. PURE."""

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.kerberos import SERVICE_NAME, KerberosKey, kerberos_key, service_name
from ottla.config.sasl import (
    MECHANISMS,
    TO_BROKERS,
    TO_CONTROLLERS,
    checked_url,
    jaas_name,
    login_module_of,
    sasl_value,
)
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.jaas import LoginModule

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"


class PasswordLogin(NamedTuple):
    """PLAIN and SCRAM."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"PasswordLogin({self.mechanism}, {self.user})"


class KerberosLoginSettings(NamedTuple):
    """GSSAPI."""

    key: KerberosKey
    service: str
    """First part of the principals of the other brokers."""


class TokenLoginSettings(NamedTuple):
    """OAUTHBEARER: where tokens come from."""

    url: str
    """A file with a token, or the endpoint of the provider."""
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None

    def __repr__(self) -> str:
        """Without the secret."""
        return f"TokenLoginSettings({self.url}, {self.client_id})"


Login = PasswordLogin | KerberosLoginSettings | TokenLoginSettings


def login(config: "BrokerConfig", listener: str) -> Login:
    """How this node logs in to that listener of other brokers, or of controllers. Raises `InvalidConfig`."""
    name = TO_CONTROLLERS if listener in config.controller_security_protocols else TO_BROKERS
    mechanism = str(config.value(name)).upper()
    if mechanism not in MECHANISMS:
        raise InvalidConfig(f"{name}: {mechanism} is not supported; {', '.join(MECHANISMS)} are")
    setting = jaas_name(listener, mechanism)
    module = login_module_of(config, listener, mechanism)
    if module is None:
        raise InvalidConfig(f"{setting} is missing: this broker logs in to others with what it names")
    if mechanism == "GSSAPI":
        key = kerberos_key(setting, module)
        given = sasl_value(config, listener, mechanism, SERVICE_NAME)
        return KerberosLoginSettings(key, service_name(setting, module, given if isinstance(given, str) else None))
    if mechanism == "OAUTHBEARER":
        return _token_login(config, listener, module)
    if not {"username", "password"} <= module.options.keys():
        raise InvalidConfig(f"{setting} needs username and password, to log in to other brokers")
    return PasswordLogin(mechanism, module.options["username"], module.options["password"])


def _token_login(config: "BrokerConfig", listener: str, module: "LoginModule") -> TokenLoginSettings:
    def text(name: str, option: str | None = None) -> str | None:
        found = sasl_value(config, listener, "OAUTHBEARER", name)
        return found if isinstance(found, str) and found else module.options.get(option or "")

    given = text(TOKEN_URL)
    if given is None:
        raise InvalidConfig(
            f"{TOKEN_URL} is missing: this broker logs in to others with a token from there, a file or the endpoint of "
            "an identity provider"
        )
    url = checked_url(TOKEN_URL, given)
    client_id, client_secret = text(_CLIENT_ID, "clientId"), text(_CLIENT_SECRET, "clientSecret")
    if url.startswith("file:"):
        return TokenLoginSettings(url)
    if not client_id or not client_secret:
        raise InvalidConfig(f"{TOKEN_URL} of a provider needs {_CLIENT_ID} and {_CLIENT_SECRET}")
    return TokenLoginSettings(url, client_id, client_secret, text(_SCOPE, "scope"))
