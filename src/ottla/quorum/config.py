"""PURE. A replica's identity and its timeouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.quorum.replicas import Endpoint, ReplicaKey, VoterSet


@dataclass(frozen=True, slots=True)
class OwnReplica:
    """This replica. `endpoints` are its controller listeners, without which it can only observe."""

    key: ReplicaKey
    cluster_id: str
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def can_vote(self) -> bool:
        """Whether this replica may become a voter."""
        return bool(self.endpoints)


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """The settings of `controller.quorum.*`, with Kafka's defaults; times in milliseconds, sizes in bytes."""

    static_voters: VoterSet = field(default_factory=VoterSet)
    """`controller.quorum.voters`: they count until the log names voters."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """Hosts and ports to ask for the leader when it is not known."""
    listener_names: tuple[str, ...] = ("CONTROLLER",)
    """`controller.listener.names`; the first that a voter has is used to reach it."""
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 << 20
    snapshot_fetch_max_bytes: int = 8 << 20
    auto_join: bool = False
    """`controller.quorum.auto.join.enable` (KIP-1186): an observer with controller listeners makes itself a voter."""
