"""Settings of a worker, by Kafka Connect's names."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from ottla.client.properties import (
    TOKEN_LOGIN,
    PropertiesProblem,
    library_settings,
    overridden,
    translated,
)
from ottla.connect.clients.client_log import CLIENT_LOG
from ottla.connect.errors import ConfigError
from ottla.connect.settings import Settings, setting

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_SIMPLE_HEADERS: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

_CLIENT: Final = (
    *("bootstrap.servers", "security.protocol", "sasl.", "ssl.", "enable.ssl.", "https.ca.", "client.rack", "broker."),
    TOKEN_LOGIN,
)
"""What all clients of the worker share; other settings of theirs come with a prefix: producer., consumer., admin."""


class WorkerSettings(Settings):
    """A worker. Without `offset.storage.file.filename` it is one of a group; alone in it, if it likes."""

    bootstrap_servers: str = setting(
        "The brokers: host:port, with commas between.", "127.0.0.1:9092", importance="high"
    )
    group_id: str = setting("Workers with the same one share connectors.", "connect-cluster", importance="high")
    config_storage_topic: str = setting("The topic of configurations.", "connect-configs", importance="high")
    config_storage_replication_factor: int = setting("Its replicas; -1: the brokers' default.", -1)
    offset_storage_topic: str = setting("The topic of sources' positions.", "connect-offsets", importance="high")
    offset_storage_partitions: int = setting("Its partitions, when it is made.", 25, ge=1)
    offset_storage_replication_factor: int = setting("Its replicas; -1: the brokers' default.", -1)
    status_storage_topic: str = setting("The topic of statuses.", "connect-status", importance="high")
    status_storage_partitions: int = setting("Its partitions, when it is made.", 5, ge=1)
    status_storage_replication_factor: int = setting("Its replicas; -1: the brokers' default.", -1)
    offset_storage_file_filename: str | None = setting("Standalone: the file with all of a worker's state.", None)
    key_converter: str = setting("Key converter of connectors that name none.", _JSON, importance="high")
    value_converter: str = setting("Value converter of connectors that name none.", _JSON, importance="high")
    header_converter: str = setting("Header converter of connectors that name none.", _SIMPLE_HEADERS)
    exactly_once_source_support: str = setting(
        "enabled: a source's records and positions go into one transaction; disabled: at least once.",
        "enabled",
        pattern="^(?i:enabled|preparing|disabled)$",
    )
    listeners: str = setting(
        "Where the REST API listens: http://HOST:PORT and https://HOST:PORT, commas between; port 0: any free one. "
        "https takes its certificates from listeners.https.ssl.*, with the names of a broker's settings "
        "(listeners.https.ssl.keystore.location). Other addresses than loopback ones need a login "
        "(rest.users.file, rest.oauthbearer.jwks.endpoint.url, or listeners.https.ssl.client.auth=required).",
        "http://127.0.0.1:8083",
    )
    rest_allow_unauthenticated: bool = setting(
        "Whether the REST API may listen on other addresses than loopback ones without a login: every client that "
        "reaches it can then do everything.",
        False,
    )
    rest_users_file: str | None = setting(
        "Users of the REST API: a file with name=password a line; a password may be its hash (`ottla connect "
        "hash-password`). It is read again when it has changed.",
        None,
    )
    rest_extension_classes: str = setting(
        "Kafka's BasicAuthSecurityRestExtension: users are in the file that the PropertyFileLoginModule of a JAAS "
        "configuration names. Other extensions are refused.",
        "",
    )
    rest_jaas_file: str | None = setting(
        "That JAAS configuration; without it, -Djava.security.auth.login.config in the variable KAFKA_OPTS counts.",
        None,
    )
    rest_admin_users: str | None = setting(
        "Users who may change something, with commas between; *: all. The others may read, and see no passwords. "
        "Without it: all users of the file, and nobody by a token alone.",
        None,
    )
    rest_oauthbearer_jwks_endpoint_url: str | None = setting(
        "The keys of the provider whose tokens (JWT) the REST API accepts: https://..., or file:///...", None
    )
    rest_oauthbearer_expected_audience: str = setting(
        "Audiences, with commas between, of which a token has to name one. Needed with tokens.", ""
    )
    rest_oauthbearer_expected_issuer: str | None = setting("The issuer that a token has to name.", None)
    rest_oauthbearer_sub_claim_name: str = setting("The claim of a token that is its user.", "sub")
    rest_oauthbearer_clock_skew_seconds: int = setting("By how many seconds clocks may differ.", 30, ge=0)
    access_control_allow_origin: str = setting(
        "Web pages that may use the REST API: origins with commas between, or *. Empty: none.", ""
    )
    access_control_allow_methods: str = setting(
        "Methods by which they may, with commas between. Empty: GET, POST and HEAD.", ""
    )
    rest_advertised_listener: str | None = setting(
        "By which of the listeners other workers reach this one, http or https; all workers of a group use the same. "
        "Without it: the first of listeners.",
        None,
        pattern="^(?i:https?)$",
    )
    rest_advertised_host_name: str | None = setting("The host by which other workers reach this one.", None)
    rest_advertised_port: int | None = setting("The port by which other workers reach this one.", None)
    plugin_path: str = setting(
        "Directories, with commas between, whose modules may be connectors and transforms. Others than these and those "
        "installed as entry points are not imported.",
        "",
    )
    plugin_modules: str = setting(
        "Modules and packages, with commas between, that may be connectors and transforms wherever they are; *: all.",
        "",
    )
    config_providers: str = setting(
        "Providers of values for ${NAME:...} in connectors, with commas between: config.providers.NAME.class is "
        "Kafka's EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider, and config.providers.NAME.param. "
        "has allowlist.pattern or allowed.paths. None: there are no such values.",
        "",
    )
    file_connectors_allowed_paths: str = setting(
        "Directories and files of this machine, with commas between, that connectors may read and write. None: none.",
        "",
    )
    http_allowed_targets: str = setting(
        "Addresses and networks (10.1.0.0/16) with commas between, and names of hosts, that HTTP connectors may reach "
        "beside public ones; *: all, also by the proxies of the environment. A name allows private addresses, no "
        "loopback or link-local ones. None: public addresses alone.",
        "",
    )
    offset_flush_interval_ms: int = setting("How often positions and offsets are kept, in ms, at least.", 1000, ge=1)
    session_timeout_ms: int = setting("After how many ms of silence a worker counts as dead.", 10000, ge=1)
    heartbeat_interval_ms: int = setting("Interval of a worker's heartbeats, in ms.", 3000, ge=1)
    rebalance_timeout_ms: int = setting("How long a task may take to stop before another worker has it.", 60000, ge=1)
    task_shutdown_graceful_timeout_ms: int = setting("How long tasks may take to stop, in ms.", 5000, ge=1)
    topic_creation_enable: bool = setting(
        "Whether topics of sources are created by the settings `topic.creation.*`.", True
    )
    topic_tracking_enable: bool = setting("Whether the topics of each connector are kept in the status topic.", True)
    topic_tracking_allow_reset: bool = setting("Whether they may be reset.", True)

    metrics_listeners: str = setting(
        "Addresses at which metrics and health are served: http://HOST:PORT, commas between; without TLS and login. "
        "None: they are not served.",
        "",
    )

    tracing_endpoint: str | None = setting(
        "A collector of OpenTelemetry to which traces are sent as OTLP over HTTP, such as "
        "http://127.0.0.1:4318/v1/traces: sources give records the header traceparent, and sinks follow it. None: no "
        "traces.",
        None,
    )

    @property
    def standalone(self) -> bool:
        """Whether this worker is alone, with its state in a file."""
        return self.offset_storage_file_filename is not None

    @property
    def exactly_once(self) -> bool:
        """Whether sources write in transactions."""
        return self.exactly_once_source_support.lower() == "enabled" and not self.standalone


def worker_settings(settings: Mapping[str, str]) -> WorkerSettings:
    """The settings of a worker. Raises ConfigError with a sentence about the first that is wrong."""
    from pydantic import ValidationError

    try:
        return WorkerSettings.model_validate(settings)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else None
        raise ConfigError(f"{name or 'the worker'}: {first['msg'].lower()}", name) from None


_OTHERS: Final = (
    *_CLIENT,
    *("producer.", "consumer.", "admin.", "key.converter.", "value.converter.", "header.converter."),
    *(
        "plugin.discovery",
        "listeners.https.",
        "config.providers.",
        "connector.client.config.override.policy",
        "client.id",
    ),
    *("metric", "access.control.", "response.http.headers.", "worker.", "inter.worker.", "connect.protocol"),
    *(
        "scheduled.rebalance.max.delay.ms",
        "offset.flush.timeout.ms",
        "topic.creation.",
        "internal.",
        "client.dns.lookup",
    ),
    *("task.shutdown.", "connections.max.idle.ms", "retry.backoff.", "reconnect.backoff.", "request.timeout.ms"),
    *("receive.buffer.bytes", "send.buffer.bytes", "socket.", "metadata.", "admin.listeners", "offset.storage.topic."),
    *("config.storage.topic.", "status.storage.topic."),
)
"""Beginnings of what clients and converters know, and of Kafka's settings that have no meaning here."""


def unknown_worker_settings(settings: Mapping[str, str]) -> list[str]:
    """A sentence for each unused setting, with the nearest existing one."""
    known = [field.alias or name for name, field in WorkerSettings.model_fields.items()]
    sentences = []
    for name in settings:
        if name not in known and not name.startswith(_OTHERS):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            sentences.append(f"the worker's setting {name} is unknown, and left alone{hint}")
    return sentences


def client_settings(settings: Mapping[str, str], kind: str = "") -> dict[str, Any]:
    """The settings of a client of the worker: what all share, and what has the prefix `kind.`.

    Raises ConfigError for security settings that cannot be used.
    """
    return for_library(shared_settings(settings, kind))


def for_library(translated_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a client. Raises ConfigError."""
    try:
        return library_settings(translated_settings)
    except PropertiesProblem as problem:
        raise ConfigError(str(problem)) from None


def with_overrides(settings: Mapping[str, str], kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """As `client_settings`, with settings of a connector in the place of the worker's. Raises ConfigError."""
    return for_library(overridden(shared_settings(settings, kind), own))


def own_settings(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings behind a prefix, by the client library's names. Raises ConfigError."""
    own = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    try:
        return translated(own)
    except PropertiesProblem as problem:
        raise ConfigError(f"{prefix}{problem}") from None


def shared_settings(settings: Mapping[str, str], kind: str = "") -> dict[str, Any]:
    """As `client_settings`, with key stores and tokens still to be read."""
    given = {name: value for name, value in settings.items() if name.startswith(_CLIENT)}
    shared: dict[str, Any] = dict(own_settings(given, ""))
    shared.setdefault("bootstrap.servers", WorkerSettings.model_fields["bootstrap_servers"].default)
    shared["logger"] = CLIENT_LOG
    for name, value in _SOONER.items():
        shared.setdefault(name, value)
    if kind:
        shared = overridden(shared, own_settings(settings, f"{kind}."))
    return shared


def connection_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a client that say how brokers are reached, for a client of another kind."""
    wanted = (*_CLIENT, "logger", "reconnect.", "oauth_cb")
    return {name: value for name, value in client.items() if name.startswith(wanted)}


_SOONER: Final[Mapping[str, Any]] = {"reconnect.backoff.ms": 20}
"""The client library waits for half of this between its first connection and the one that it then uses, 50 ms by
default. It grows with each failure all the same.
"""
TRANSACTIONAL: Final[Mapping[str, Any]] = {"enable.sparse.connections": False}
"""For producers with transactions. One that has no connection when it is to look for its coordinator looks again after
500 ms: this one connects to the brokers by itself, not when it has something to ask.
"""
