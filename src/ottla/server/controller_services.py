"""The parts of a running controller that handlers may use; each is bound to those that it names (`binding`)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.ended_brokers import EndedBrokers
    from ottla.metadata.quorum.node import QuorumNode
    from ottla.metadata.quorum_acls import QuorumAcls
    from ottla.metadata.quorum_controller import QuorumController
    from ottla.metadata.quorum_decisions import QuorumDecisions
    from ottla.metadata.quorum_replay import QuorumReplay
    from ottla.metadata.registered_brokers import RegisteredBrokers
    from ottla.protocol.api import ApiKey
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.client_quotas import ClientQuotas
    from ottla.server.large_answers import LargeAnswers
    from ottla.server.listeners import Listeners
    from ottla.server.routing import Handler, Handlers
    from ottla.server.telemetry import Telemetry
    from ottla.slices import Slices


class ControllerCluster:
    """Takes the place of a broker's `ClusterMember` for the handlers that brokers and controllers share."""

    def __init__(self, controller: "QuorumController") -> None:
        self._controller = controller

    def active_controller(self) -> "QuorumController":
        """This node's controller. Raises `NotController` unless it is the active one."""
        self._controller.decisions.check_active()
        return self._controller

    def forwards(self, api_key: "ApiKey", own: "Callable[[], Handler]") -> None:
        """A controller forwards nothing: it answers, or names the active one."""


@dataclass(slots=True)
class ControllerServices:
    """All parts of a controller. Where it has what a broker has, too, the names are those of `Services`."""

    config: "BrokerConfig"
    """With the controller's listeners in place of a broker's."""
    clock: "Clock"
    loop: "asyncio.AbstractEventLoop"
    metadata: "QuorumDecisions"
    controller: "QuorumController"
    replay: "QuorumReplay"
    quorum: "QuorumNode"
    cluster: ControllerCluster
    listeners: "Listeners"
    telemetry: "Telemetry"
    quotas: "ClientQuotas"
    slices: "Slices"
    membership: ControllerCluster
    """The same: handlers that ask for the active controller name it so."""
    ended: "EndedBrokers"
    large_answers: "LargeAnswers"
    """Records of the metadata log, and snapshots, which are held in memory."""
    handlers: "Handlers | None" = None
    """For requests within an Envelope."""
    acls: "QuorumAcls | None" = None
    audit: "AuditLog | None" = None
    tokens: "DelegationTokens | None" = None
    registered_brokers: "RegisteredBrokers | None" = None
    """None: the authorizer alone decides which clients are brokers, as in Kafka."""
