"""Client properties by the names of Java's clients and of librdkafka, for every client in this project.

    either's names -- translated() --> librdkafka's names --+-- library_settings() --> a client of confluent-kafka
                                                            +-- security.security_of() --> a connection of our own

`translated` reads no file and is PURE; key stores and tokens are read where a client is made, on the machine that uses
it. Sources: Kafka's `SslConfigs` and `SaslConfigs`; librdkafka's CONFIGURATION.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.config.jaas import LoginModule, login_module
from ottla.errors import InvalidConfig

TOKEN_LOGIN: Final = "ottla.delegation.token"
"""Ours: the user name and password are the id and the secret of a delegation token (`tokenauth="true"` in Java)."""
SECRETS: Final = frozenset(
    (
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)
"""Properties whose values nobody may see."""
HIDDEN: Final = "[hidden]"
_OF_JAVA_ALONE: Final = frozenset(
    (
        "auto.include.jmx.reporter",
        "buffer.memory",
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy.class",
        "partitioner.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "security.providers",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    )
)
"""Without meaning here, and without loss of protection."""
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_LOGIN_CLASSES: Final = "sasl.login.callback.handler.class"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_OURS: Final = (
    "OAuthBearerLoginCallbackHandler",
    "ClientCredentialsJwtRetriever",
    "DefaultJwtRetriever",
    "FileJwtRetriever",
)
"""Java's classes whose work is done here as well."""
_OF_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_SAFE_PROTOCOLS: Final = frozenset(("TLSv1.2", "TLSv1.3"))
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"


_GROUPS: Final = (
    ("sasl.username", "sasl.password", "sasl.oauthbearer.", "oauth_cb", TOKEN_LOGIN),
    ("ssl.key.", "ssl.certificate.", "ssl.keystore."),
    ("ssl.ca.", "ssl.truststore."),
)
"""Beginnings of properties that belong together."""


class PropertiesProblem(ValueError):
    """A property that cannot be used; the text names it and the remedy, and quotes no secret."""


def translated(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties by librdkafka's names; a value under that name wins over the one under Java's.

    Key stores stay what they are (`ssl.keystore.*`, `ssl.truststore.*`). Raises PropertiesProblem.
    """
    found = {name: value for name, value in properties.items() if name not in _OF_JAVA_ALONE}
    for javas, name in _RENAMED.items():
        if javas in found:
            value = found.pop(javas)
            found.setdefault(name, value)
    line = found.pop("sasl.jaas.config", None)
    if line is not None:
        for name, value in _login(line).items():
            found.setdefault(name, value)
    for name in (_LOGIN_CLASSES, _RETRIEVER):
        handler = found.pop(name, None)
        if handler and handler.rpartition(".")[2] not in _OURS:
            raise PropertiesProblem(
                f"{name} names the class {handler}, which only Java loads; client credentials and token files need "
                f"none: set {ENDPOINT}"
            )
    enabled = found.pop("ssl.enabled.protocols", None)
    if enabled is not None and {name.strip() for name in enabled.split(",")} != _SAFE_PROTOCOLS:
        raise PropertiesProblem(
            f"ssl.enabled.protocols is {enabled!r}: the versions cannot be chosen here; leave it out, and TLS 1.2 and "
            "1.3 are spoken, or limit them at the brokers"
        )
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    if ENDPOINT in found and not is_file(found[ENDPOINT]):
        found.setdefault("sasl.oauthbearer.method", "oidc")
    return found


def _login(line: str) -> dict[str, str]:
    try:
        module = login_module("sasl.jaas.config", line)
    except InvalidConfig as problem:
        raise PropertiesProblem(str(problem)) from None
    if module.name in ("PlainLoginModule", "ScramLoginModule"):
        return _password_login(module)
    if module.name == "OAuthBearerLoginModule":
        unsecured = [name for name in module.options if name.startswith("unsecuredLogin")]
        if unsecured:
            raise PropertiesProblem(
                f"sasl.jaas.config asks for unsigned tokens ({unsecured[0]}), which nobody makes here; "
                f"name the provider in {ENDPOINT}"
            )
        return {name: module.options[option] for option, name in _OF_OAUTH.items() if option in module.options}
    raise PropertiesProblem(
        f"sasl.jaas.config names {module.name}; PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule are "
        "understood, and for Kerberos librdkafka's sasl.kerberos.*"
    )


def _password_login(module: LoginModule) -> dict[str, str]:
    if not {"username", "password"} <= module.options.keys():
        raise PropertiesProblem("sasl.jaas.config has no username and password; set sasl.username, sasl.password")
    found = {f"sasl.{name}": module.options[name] for name in ("username", "password")}
    if module.options.get("tokenauth", "").lower() == "true":
        found[TOKEN_LOGIN] = "true"
    return found


def overridden(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Translated properties with others in the place of theirs: a login, a key and a trust are replaced as a whole.

    Else a password of `base` could be sent for the user of `own`, or a store of `base` trusted besides.
    """
    replaced = [group for group in _GROUPS if any(name.startswith(group) for name in own)]
    kept = {name: value for name, value in base.items() if not any(name.startswith(group) for group in replaced)}
    return {**kept, **own}


def is_file(url: str) -> bool:
    """Whether an endpoint is a file with a token (KIP-768)."""
    return url.lower().startswith("file:")


def hidden(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties to be shown: with `HIDDEN` for what nobody may see."""
    return {name: HIDDEN if is_secret(name) else value for name, value in properties.items()}


def is_secret(name: str) -> bool:
    """Whether the value of a property may not be shown: one of `SECRETS`, also with a prefix such as `kafka.`."""
    return any(name == secret or name.endswith(f".{secret}") for secret in SECRETS)


def library_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of the client library: key stores are read, tokens of files are found when they are needed.

    `properties` may have values of the library's own besides, such as callbacks. Raises PropertiesProblem.
    """
    texts = {name: value for name, value in properties.items() if isinstance(value, str)}
    others = {name: value for name, value in properties.items() if not isinstance(value, str)}
    found: dict[str, Any] = translated(texts)
    found.pop(TOKEN_LOGIN, None)
    endpoint = found.get(ENDPOINT)
    if endpoint is not None and is_file(endpoint) and "oauth_cb" not in others:
        found["oauth_cb"] = _from_file(found.pop(ENDPOINT))
        for name in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope"):
            found.pop(name, None)
    if any(name.startswith(("ssl.truststore.", "ssl.keystore.")) for name in found):
        from ottla.client.stores import with_stores_read

        found = with_stores_read(found, keeps_pkcs12=True)
    return {**found, **others}


def _from_file(url: str) -> Callable[[str], tuple[str, float]]:
    """What the library calls for a token: the token, and when it expires."""

    def oauth_cb(_: str) -> tuple[str, float]:
        from ottla.client.tokens import token_of_file

        found = token_of_file(url)
        return found.text, found.expires_s

    return oauth_cb
