"""The settings of a mirror: which topics and groups of which cluster, and what they are called here."""

import functools
from collections.abc import Collection
from typing import Any, Final

from ottla.client.properties import PropertiesProblem, library_settings
from ottla.connect.api import ConfigError, SecretStr, Settings, setting
from ottla.connect.clients.client_log import CLIENT_LOG
from ottla.connect.patterns import compiled
from ottla.connect.settings import Expressions

OF_SOURCE: Final = "source.cluster."
"""Settings of the client of the other cluster begin so."""

pattern = functools.lru_cache(1000)(compiled)


class MirrorSettings(Settings):
    """Which topics of which cluster."""

    source_cluster_alias: str = setting("Name of the other cluster, with which names of topics begin here.", "source")
    target_cluster_alias: str = setting(
        "Name of this cluster, where the other one mirrors it: topics that came from here do not come back.", ""
    )
    source_cluster_bootstrap_servers: str = setting("Brokers of the other cluster.", importance="high")
    source_cluster_security_protocol: str = setting(
        "Security protocol of the other cluster, as in client settings.", "PLAINTEXT"
    )
    source_cluster_sasl_mechanism: str = setting("How this client logs in there.", "")
    source_cluster_sasl_username: str = setting("Its user there.", "")
    source_cluster_sasl_password: SecretStr | None = setting("Its password there.", None)
    source_cluster_sasl_jaas_config: SecretStr | None = setting("The same as a JAAS line of Java's clients.", None)
    source_cluster_sasl_oauthbearer_token_endpoint_url: str = setting(
        "The identity provider there, or a token's file.", ""
    )
    source_cluster_ssl_truststore_location: str = setting("Authorities of the other cluster: PEM or PKCS12.", "")
    source_cluster_ssl_truststore_password: SecretStr | None = setting("The password of that file.", None)
    source_cluster_ssl_truststore_certificates: str = setting("The authorities as PEM text.", "")
    source_cluster_ssl_ca_location: str = setting("The authorities as a PEM file, by librdkafka's name.", "")
    source_cluster_ssl_keystore_location: str = setting("Key and certificate of this client: PEM or PKCS12.", "")
    source_cluster_ssl_keystore_password: SecretStr | None = setting("The password of that file.", None)
    source_cluster_ssl_key_password: SecretStr | None = setting("The password of the key.", None)
    source_cluster_ssl_endpoint_identification_algorithm: str | None = setting(
        "Empty: names of hosts are not compared with certificates.", None
    )
    topics: Expressions = setting("Topics, or regular expressions for their names.", importance="high")
    topics_exclude: Expressions = setting(
        "Regular expressions for topics to leave out.",
        default_factory=lambda: [r"__.*", r".*[\-.]internal", r".*\.replica"],
    )
    replication_policy_class: str = setting(
        "DefaultReplicationPolicy: topics are called alias.topic here; IdentityReplicationPolicy: as they are there.",
        "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        pattern=r"(.*\.)?(Default|Identity)ReplicationPolicy",
    )
    replication_policy_separator: str = setting("What stands between alias and topic.", ".")
    sync_topic_configs_enabled: bool = setting("Whether settings of topics are copied too.", True)
    replication_factor: int = setting("Replicas of topics made here; -1: the cluster's default.", -1, ge=-1)
    refresh_topics_interval_seconds: int = setting(
        "Seconds between looks for new topics, partitions and settings.", 60, ge=1
    )
    sync_group_offsets_enabled: bool = setting("Whether the committed offsets of groups are copied, translated.", False)
    sync_group_offsets_interval_seconds: int = setting("Seconds between two copies of them.", 60, ge=1)
    groups: Expressions = setting("Regular expressions for the groups.", default_factory=lambda: [".*"])
    consumer_max_poll_records: int = setting("Most records handed on at once.", 2_000, ge=1)

    def client(self) -> dict[str, Any]:
        """For the client library."""
        given: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            value = value.get_secret_value() if isinstance(value, SecretStr) else value
            alias = field.alias or name
            if alias.startswith(OF_SOURCE) and (value or (value == "" and field.default is None)):
                given[alias.removeprefix(OF_SOURCE)] = value
        given.pop("alias", None)
        try:
            return library_settings({**given, "logger": CLIENT_LOG})
        except PropertiesProblem as problem:
            raise ConfigError(f"{OF_SOURCE}*: {problem}") from None

    def mirrored(self, topic: str) -> bool:
        """Whether a topic of the other cluster is to be copied, by its name."""
        return any(pattern(each).fullmatch(topic) for each in self.topics) and not any(
            pattern(each).fullmatch(topic) for each in self.topics_exclude
        )

    def has_come_round(self, topic: str, there: Collection[str]) -> bool:
        """Whether a topic of the other cluster is a copy of one here (`target.cluster.alias`), or, by way of a third
        cluster or of this one, of one there: to copy it would never end.
        """
        separator = self.replication_policy_separator
        parts = topic.split(separator)
        if self.target_cluster_alias and self.target_cluster_alias in parts[:-1]:
            return True
        return any(
            alias == self.source_cluster_alias and separator.join(parts[number + 1 :]) in there
            for number, alias in enumerate(parts[:-1])
            if number
        )

    def name_here(self, topic: str) -> str:
        """What a topic of the other cluster is called here."""
        if self.replication_policy_class.endswith("IdentityReplicationPolicy"):
            return topic
        return f"{self.source_cluster_alias}{self.replication_policy_separator}{topic}"
