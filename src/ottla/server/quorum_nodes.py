"""A node of the metadata quorum as the settings want it: a controller's, or a broker's that only follows."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.metadata.quorum.metadata_log import MetadataLogConfig
from ottla.metadata.quorum.raft_node import RaftNode
from ottla.quorum.config import OwnReplica, QuorumConfig
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.log.fs import FileSystem


def raft_node(
    config: "BrokerConfig",
    fs: "FileSystem",
    clock: "Clock",
    connect: "Connect",
    *,
    cluster_id: str,
    directory_id: UUID,
    endpoints: Mapping[str, tuple[str, int]] | None = None,
    failed: Callable[[str], None],
) -> RaftNode:
    """The node, not started yet. `endpoints` are the controllers' listeners of this process; without any it does not
    vote. `failed` gets the reason when it cannot go on."""
    own = OwnReplica(
        ReplicaKey(config.node_id, directory_id),
        cluster_id,
        tuple(Endpoint(name, host, port) for name, (host, port) in (endpoints or {}).items()),
    )
    return RaftNode(
        own,
        str(config.metadata_log_dir or config.log_dirs[0]),
        quorum_config(config),
        log_config(config),
        fs=fs,
        clock=clock,
        connect=connect,
        linger_ms=config.controller_quorum_append_linger_ms,
        failed=lambda problem: failed(f"the metadata log of this node has failed: {problem}"),
    )


def quorum_config(config: "BrokerConfig") -> QuorumConfig:
    """The settings `controller.quorum.*`."""
    assert config.quorum is not None
    names = tuple(name.upper() for name in config.controller_listener_names)
    voters = [
        Voter(ReplicaKey(node_id), (Endpoint(names[0], host, port),))
        for node_id, (host, port) in config.quorum.voters.items()
    ]
    return QuorumConfig(
        static_voters=VoterSet(voters),
        bootstrap_servers=config.quorum.bootstrap_servers,
        listener_names=names,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        snapshot_fetch_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        auto_join=config.controller_quorum_auto_join_enable,
    )


def log_config(config: "BrokerConfig") -> MetadataLogConfig:
    """The settings `metadata.log.*` and `metadata.max.retention.*`."""
    return MetadataLogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
        bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )
