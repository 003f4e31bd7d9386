"""`BrokerConfig`: the broker's settings as typed attributes, each under Kafka's name with underscores for dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Final, NoReturn, cast, final

from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.group_settings import GroupSettings, check_group_defaults, group_settings
from ottla.config.listeners import SECURITY_PROTOCOLS, Listener, controller_protocols, listeners_in, pairs, words
from ottla.config.log import LogConfig
from ottla.config.protection import UNPROTECTED
from ottla.config.quorum import SWITCH, Quorum, quorum
from ottla.config.setting import Value, invalid_value, parse_value, render_value
from ottla.config.topic_defaults import TopicDefaults
from ottla.errors import InvalidConfig
from ottla.ids import BrokerId

SERVED_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ALL_DIRECTORIES: Final = "*"
LEAST_DEDUPE_BYTES: Final = 1 << 20


@final
class BrokerConfig:
    """The settings Ottla acts on, read and checked; immutable.

    Raises `InvalidConfig` when a value is refused or two settings contradict each other.
    """

    node_id: BrokerId
    broker_id: int
    broker_rack: str | None
    process_roles: tuple[str, ...]
    metadata_log_dir: str | None
    controller_quorum_voters: tuple[str, ...]
    controller_quorum_bootstrap_servers: tuple[str, ...]
    controller_quorum_auto_join_enable: bool
    controller_quorum_election_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_append_linger_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_keystore_type: str | None
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: str | None
    zookeeper_ssl_truststore_type: str | None
    zookeeper_ssl_enabled_protocols: tuple[str, ...]
    zookeeper_ssl_cipher_suites: tuple[str, ...]
    zookeeper_ssl_endpoint_identification_algorithm: str | None
    zookeeper_ssl_crl_enable: bool
    zookeeper_set_acl: bool
    zookeeper_metadata_migration_enable: bool
    zookeeper_sasl_jaas_config: str | None
    inter_broker_listener_name: str | None
    security_inter_broker_protocol: str
    control_plane_listener_name: str | None
    inter_broker_peer_addresses: tuple[str, ...]
    controller_socket_timeout_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    replica_lag_time_max_ms: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_socket_timeout_ms: int
    replica_selector_class: str | None
    telemetry_max_bytes: int
    metrics_listeners: tuple[str, ...]
    metrics_topics_max: int
    metrics_groups_max: int
    tracing_endpoint: str | None
    tracing_slow_request_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    create_topic_policy_class_name: str | None
    alter_config_policy_class_name: str | None
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_max_bytes: int
    max_request_partition_size_limit: int
    log_cleanup_policy: tuple[str, ...]
    log_flush_before_ack: bool
    log_flush_interval_messages: int
    log_flush_interval_ms: int | None
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_preallocate: bool
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int | None
    log_roll_hours: int
    log_roll_jitter_hours: int
    log_roll_jitter_ms: int | None
    log_roll_ms: int | None
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    log_initial_task_delay_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    ssl_client_auth: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_cipher_suites: tuple[str, ...]
    ssl_endpoint_identification_algorithm: str | None
    ssl_principal_mapping_rules: str
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_mechanism_inter_broker_protocol: str
    sasl_mechanism_controller_protocol: str
    sasl_server_max_receive_size: int
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    delegation_token_secret_key: str | None
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int
    initial_scram_users: str | None
    ottla_audit_file: str | None
    ottla_audit_events: tuple[str, ...]
    ottla_audit_max_file_bytes: int
    ottla_audit_max_files: int
    ottla_audit_max_events_per_second: int
    ottla_audit_on_failure: str
    sasl_kerberos_service_name: str | None
    sasl_kerberos_principal_to_local_rules: tuple[str, ...]
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_expected_audience: tuple[str, ...]
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_clock_skew_seconds: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    queued_max_request_bytes: int
    socket_request_max_bytes: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    group_share_assignment_interval_ms: int
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_max_delivery_count_limit: int
    group_share_max_heartbeat_interval_ms: int
    group_share_max_partition_max_record_locks: int
    group_share_max_record_lock_duration_ms: int
    group_share_max_session_timeout_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_min_assignment_interval_ms: int
    group_share_min_delivery_count_limit: int
    group_share_min_heartbeat_interval_ms: int
    group_share_min_partition_max_record_locks: int
    group_share_min_record_lock_duration_ms: int
    group_share_min_session_timeout_ms: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int
    group_streams_assignment_interval_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_max_size: int
    group_streams_max_standby_replicas: int
    group_streams_min_assignment_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_num_standby_replicas: int
    group_streams_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transaction_partition_verification_enable: bool
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    request_timeout_ms: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int

    # Written as one string, read into something better.
    listeners: tuple[Listener, ...]
    """In the order given; listeners of `controller.listener.names` left out."""
    advertised_listeners: tuple[Listener, ...]
    listener_security_protocol_map: Mapping[str, str]
    controller_listener_names: tuple[str, ...]
    controller_listeners: tuple[Listener, ...]
    """Those that `listeners` leaves out: a controller listens there."""
    advertised_controller_listeners: tuple[Listener, ...]
    controller_security_protocols: Mapping[str, str]
    """Listener name to security protocol, for the listeners of controllers: here, or on other nodes."""
    log_dirs: tuple[Path, ...]
    cordoned_log_dirs: tuple[Path, ...]
    """The directories of `log_dirs` that get no new replicas."""
    max_connections_per_ip_overrides: Mapping[str, int]

    given: Mapping[str, str]
    """The settings that were given, as they were written; all others have defaults."""

    allow_insecure: bool
    """Settings that ask for protection which does not exist yet are ignored, not refused."""

    resolve: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Replaces what settings changed later name elsewhere (`config.providers`); raises `InvalidConfig`."""

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        allow_insecure: bool = False,
        resolve: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
    ) -> None:
        """Read the settings in `given` that Ottla acts on; others are kept in `given` and ignored."""
        values: dict[str, Value] = {}
        own = self.__dict__
        for name, setting in BROKER_SETTINGS.items():
            text = given.get(name)
            value = parse_value(name, setting.kind, setting.default) if text is None else setting.parse(text)
            values[name] = own[setting.attribute] = value
        own["given"] = dict(given)
        own["allow_insecure"] = allow_insecure
        own["resolve"] = resolve
        own["_values"] = values
        self._read_names(own)
        self._check()

    def _read_names(self, own: dict[str, object]) -> None:
        values: dict[str, Value] = self.__dict__["_values"]
        protocols = pairs("listener.security.protocol.map", _text(values, "listener.security.protocol.map"))
        for name, protocol in protocols.items():
            if protocol not in SECURITY_PROTOCOLS:
                raise InvalidConfig(
                    f"listener.security.protocol.map: {protocol!r} (of listener {name}) is none of "
                    f"{', '.join(SECURITY_PROTOCOLS)}"
                )
        left_out = words(_text(values, "controller.listener.names"))
        of_controllers = {name.upper() for name in left_out}
        listeners = listeners_in("listeners", _text(values, "listeners"), protocols, of_controllers)
        if not listeners and "broker" in self.process_roles:
            raise InvalidConfig("listeners: nothing to listen at, apart from what controller.listener.names leaves out")
        advertised = listeners_in(
            "advertised.listeners", _text(values, "advertised.listeners"), protocols, of_controllers
        )
        known = {listener.name for listener in listeners}
        for listener in advertised:
            if listener.name not in known:
                raise InvalidConfig(
                    f"advertised.listeners: {listener} is not in listeners, which has {', '.join(sorted(known))}"
                )
            if listener.host in ("0.0.0.0", "::"):
                raise InvalidConfig(f"advertised.listeners: {listener} is no address that a client could dial")
        own["listener_security_protocol_map"] = protocols
        own["controller_listener_names"] = left_out
        own["controller_security_protocols"] = known_protocols = controller_protocols(
            self.given, protocols, of_controllers
        )
        for name in ("listeners", "advertised.listeners"):
            there = listeners_in(name, _text(values, name), known_protocols, of_controllers, left_out=False)
            own["controller_listeners" if name == "listeners" else "advertised_controller_listeners"] = there
        own["listeners"] = listeners
        own["advertised_listeners"] = advertised
        own["log_dirs"] = tuple(Path(word) for word in words(_text(values, "log.dirs") or _text(values, "log.dir")))
        own["cordoned_log_dirs"] = self._cordoned(cast("tuple[str, ...]", values["cordoned.log.dirs"]))
        own["max_connections_per_ip_overrides"] = {
            host: _count("max.connections.per.ip.overrides", count)
            for host, count in pairs(
                "max.connections.per.ip.overrides", _text(values, "max.connections.per.ip.overrides")
            ).items()
        }
        if "node.id" not in self.given and "broker.id" in self.given:
            own["node_id"] = values["node.id"] = self.broker_id
        own["broker_id"] = values["broker.id"] = self.broker_id if "broker.id" in self.given else self.node_id

    def _cordoned(self, words: tuple[str, ...]) -> tuple[Path, ...]:
        if ALL_DIRECTORIES in words:
            if len(words) > 1:
                raise InvalidConfig("When cordoned.log.dirs is set to *, it must not contain other values")
            return self.log_dirs
        unknown = [word for word in words if Path(word) not in self.log_dirs]
        if unknown:
            raise InvalidConfig(
                "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
                f"Missing entries : {', '.join(unknown)}"
            )
        return tuple(Path(word) for word in words)

    def _check(self) -> None:
        if self.node_id != self.broker_id:
            raise InvalidConfig(
                f"node.id is {self.node_id} and broker.id {self.broker_id}: they are one number, set only node.id"
            )
        if self.node_id < 0:
            raise InvalidConfig("broker.id: must be 0 or more; Ottla makes up no ids")
        if self.is_in_cluster:
            advertised = {listener.name: listener for listener in self.advertised_listeners}
            for listener in self.listeners:
                if advertised.get(listener.name, listener).host in ("0.0.0.0", "::"):
                    raise InvalidConfig(
                        f"listeners: in a cluster, {listener} needs an address in advertised.listeners at which "
                        "clients and other brokers reach it"
                    )
        if self.unprotected_listeners and not self.allow_insecure:
            raise InvalidConfig("\n".join([*self.unprotected_listeners, UNPROTECTED]))
        if self.inter_broker_listener_name is not None and "security.inter.broker.protocol" in self.given:
            raise InvalidConfig(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )
        names = {listener.name for listener in self.listeners}
        if names and self.inter_broker_listener not in names:
            raise InvalidConfig(f"inter.broker.listener.name: {self.inter_broker_listener} is not in listeners")
        if names and self.control_plane_listener not in names:
            raise InvalidConfig(f"control.plane.listener.name: {self.control_plane_listener} is not in listeners")
        if not self.log_dirs:
            raise InvalidConfig("log.dirs: names no directory")
        if len(set(self.log_dirs)) < len(self.log_dirs):
            raise InvalidConfig("log.dirs: names a directory twice")
        self._check_logs()
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            raise InvalidConfig(
                f"log.cleaner.min.compaction.lag.ms ({self.log_cleaner_min_compaction_lag_ms}) is more than "
                f"log.cleaner.max.compaction.lag.ms ({self.log_cleaner_max_compaction_lag_ms})"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfig("group.min.session.timeout.ms is more than group.max.session.timeout.ms")
        if "classic" not in self.group_coordinator_rebalance_protocols:
            raise InvalidConfig("group.coordinator.rebalance.protocols: classic cannot be left out")
        if self.group_share_max_share_sessions < self.group_share_max_size:
            raise InvalidConfig("group.share.max.share.sessions is less than group.share.max.size")
        check_group_defaults(self)

    def _check_logs(self) -> None:
        """In Kafka's words, which clients get for a change that is refused."""
        if cast("int", self.topics.default("segment.ms")) < 1:
            raise InvalidConfig("log.roll.ms must be greater than or equal to 1")
        if cast("int", self.topics.default("segment.jitter.ms")) < 0:
            raise InvalidConfig("log.roll.jitter.ms must be greater than or equal to 0")
        if self.topics.default("retention.ms") == 0:
            raise InvalidConfig("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
        threads = int(self.given.get("log.cleaner.threads", 1))
        if self.log_cleaner_dedupe_buffer_size // max(threads, 1) <= LEAST_DEDUPE_BYTES:
            raise InvalidConfig("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"BrokerConfig is immutable; {name} was to be set")

    def value(self, name: str) -> Value:
        """The value of a setting by Kafka's name; KeyError for one that Ottla does not act on."""
        values: dict[str, Value] = self.__dict__["_values"]
        return values[name]

    def with_changes(self, changes: Mapping[str, str]) -> BrokerConfig:
        """The settings with some given anew (dynamic configs); raises `InvalidConfig`."""
        changed = self.resolve(changes)
        return BrokerConfig({**self.given, **changed}, allow_insecure=self.allow_insecure, resolve=self.resolve)

    @cached_property
    def quorum(self) -> Quorum | None:
        """The controllers of this node's cluster; None for a node that has ZooKeeper, or is alone."""
        return quorum(self)

    def for_controllers(self) -> BrokerConfig:
        """The same settings with the controllers' listeners in place of the broker's: for a controller of this node."""
        view = copy(self)
        own = view.__dict__
        own["listeners"] = self.controller_listeners
        own["advertised_listeners"] = self.advertised_controller_listeners
        return view

    @property
    def is_in_cluster(self) -> bool:
        """Whether other nodes know this one: it has ZooKeeper, or belongs to a quorum."""
        return self.quorum is not None or self.zookeeper_connect is not None

    @property
    def is_migrating(self) -> bool:
        """Whether this node has ZooKeeper and a quorum, since its cluster moves from one to the other."""
        return self.zookeeper_connect is not None and self.zookeeper_metadata_migration_enable

    def on_zookeeper(self) -> BrokerConfig:
        """The same settings for a broker with ZooKeeper, which belongs to no quorum yet."""
        return self._without("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers", SWITCH)

    def under_quorum(self) -> BrokerConfig:
        """The same settings for a node of the quorum, which has left ZooKeeper."""
        return self._without("zookeeper.connect", SWITCH)

    def _without(self, *names: str) -> BrokerConfig:
        given = {name: text for name, text in self.given.items() if name not in names}
        return BrokerConfig(given, allow_insecure=self.allow_insecure, resolve=self.resolve)

    @property
    def unprotected_listeners(self) -> list[str]:
        """A sentence for each listener whose protocol Ottla does not have yet; it speaks plain text there."""
        return [
            f"listeners: {listener} asks for {listener.security_protocol}"
            for listener in self.listeners
            if listener.security_protocol not in SERVED_PROTOCOLS
        ]

    @property
    def security_protocols(self) -> dict[str, str]:
        """Security protocols of the listeners that do not speak plain text, by their names."""
        plain = SECURITY_PROTOCOLS[0]
        return {each.name: each.security_protocol for each in self.listeners if each.security_protocol != plain}

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener over which brokers speak with each other: without a setting PLAINTEXT, as in Kafka, or
        the first one."""
        names = [listener.name for listener in self.listeners]
        protocol = self.security_inter_broker_protocol
        is_asked_for = "security.inter.broker.protocol" in self.given
        return self.inter_broker_listener_name or (
            protocol if is_asked_for or protocol in names or not names else names[0]
        )

    @property
    def control_plane_listener(self) -> str:
        """Name of the listener over which the controller speaks to brokers."""
        return self.control_plane_listener_name or self.inter_broker_listener

    # -- topics and groups -----------------------------------------------------------------------------------------

    @cached_property
    def topics(self) -> TopicDefaults:
        """What topics get from these settings."""
        return TopicDefaults(self.given, self.value)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Settings of the logs of a topic with these overrides; names that are no topic's are ignored.

        Raises `InvalidConfig` when a value is refused.
        """
        return self.topics.log_config(overrides)

    def group_settings(self, overrides: Mapping[str, str]) -> GroupSettings:
        """Settings of a group with these overrides; names that are no group's are ignored.

        Raises `InvalidConfig` when a value is refused.
        """
        return group_settings(self, overrides) if overrides else self._default_group_settings

    @cached_property
    def _default_group_settings(self) -> GroupSettings:
        return group_settings(self, {})

    def rendered(self, name: str) -> str | None:
        """A setting's value as DescribeConfigs shows it."""
        text = self.given.get(name)
        if text is not None and name in ("listeners", "advertised.listeners"):
            return text
        return render_value(self.value(name))


def _text(values: Mapping[str, Value], name: str) -> str:
    value = values[name]
    return value if isinstance(value, str) else ""


def _count(name: str, text: str) -> int:
    if not text.isdecimal():
        raise invalid_value(name, text, "Not a number of type INT")
    return int(text)
