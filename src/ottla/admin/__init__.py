"""Administration that no client library offers, for Ottla's brokers and Apache Kafka's: see `Admin` and docs/admin.md.

Transactions, reassignments, share and streams groups, features, the history of groups, telemetry subscriptions. Results
are frozen dataclasses, refusals are exceptions with sentences.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.admin.asynchronous import AsyncAdmin
    from ottla.admin.blocking import Admin
    from ottla.admin.errors import NotFound, RequestRefused
    from ottla.admin.operations.cluster import Broker, Cluster, LogDirectory, PartitionState, Replica
    from ottla.admin.operations.delegation_tokens import DelegationToken
    from ottla.admin.operations.features import Feature
    from ottla.admin.operations.groups import ListedGroup, Move, Rebalance
    from ottla.admin.operations.machines import Controllers, Machine
    from ottla.admin.operations.quorum import Quorum, QuorumListener, QuorumReplica
    from ottla.admin.operations.quotas import EntityQuotas, QuotaEntity, QuotaUse
    from ottla.admin.operations.reassignments import Reassignment
    from ottla.admin.operations.share_groups import Deliveries, ShareGroup, ShareMember, ShareProgress
    from ottla.admin.operations.streams_groups import InternalTopic, StreamsGroup, StreamsMember, Subtopology, TaskSets
    from ottla.admin.operations.telemetry import Subscription, TelemetryClient
    from ottla.admin.operations.transactions import HangingTransaction, HeldBack, OpenTransaction, Transaction
    from ottla.client.addresses import Address
    from ottla.client.errors import AuthenticationFailed, BrokerUnavailable, ClientError, UnsupportedRequest
    from ottla.client.partition import Partition

__all__ = [
    "Address",
    "Admin",
    "AsyncAdmin",
    "AuthenticationFailed",
    "Broker",
    "BrokerUnavailable",
    "ClientError",
    "Cluster",
    "Controllers",
    "DelegationToken",
    "Deliveries",
    "EntityQuotas",
    "Feature",
    "HangingTransaction",
    "HeldBack",
    "InternalTopic",
    "ListedGroup",
    "LogDirectory",
    "Machine",
    "Move",
    "NotFound",
    "OpenTransaction",
    "Partition",
    "PartitionState",
    "Quorum",
    "QuorumListener",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaUse",
    "Reassignment",
    "Rebalance",
    "Replica",
    "RequestRefused",
    "ShareGroup",
    "ShareMember",
    "ShareProgress",
    "StreamsGroup",
    "StreamsMember",
    "Subscription",
    "Subtopology",
    "TaskSets",
    "TelemetryClient",
    "Transaction",
    "UnsupportedRequest",
]

_MODULES: Final = {
    "Address": "ottla.client.addresses",
    "Admin": "ottla.admin.blocking",
    "AsyncAdmin": "ottla.admin.asynchronous",
    "AuthenticationFailed": "ottla.client.errors",
    "Broker": "ottla.admin.operations.cluster",
    "BrokerUnavailable": "ottla.client.errors",
    "ClientError": "ottla.client.errors",
    "Cluster": "ottla.admin.operations.cluster",
    "Controllers": "ottla.admin.operations.machines",
    "DelegationToken": "ottla.admin.operations.delegation_tokens",
    "Deliveries": "ottla.admin.operations.share_groups",
    "EntityQuotas": "ottla.admin.operations.quotas",
    "Feature": "ottla.admin.operations.features",
    "HangingTransaction": "ottla.admin.operations.transactions",
    "HeldBack": "ottla.admin.operations.transactions",
    "InternalTopic": "ottla.admin.operations.streams_groups",
    "ListedGroup": "ottla.admin.operations.groups",
    "LogDirectory": "ottla.admin.operations.cluster",
    "Machine": "ottla.admin.operations.machines",
    "Move": "ottla.admin.operations.groups",
    "NotFound": "ottla.admin.errors",
    "OpenTransaction": "ottla.admin.operations.transactions",
    "Partition": "ottla.client.partition",
    "PartitionState": "ottla.admin.operations.cluster",
    "Quorum": "ottla.admin.operations.quorum",
    "QuorumListener": "ottla.admin.operations.quorum",
    "QuorumReplica": "ottla.admin.operations.quorum",
    "QuotaEntity": "ottla.admin.operations.quotas",
    "QuotaUse": "ottla.admin.operations.quotas",
    "Reassignment": "ottla.admin.operations.reassignments",
    "Rebalance": "ottla.admin.operations.groups",
    "Replica": "ottla.admin.operations.cluster",
    "RequestRefused": "ottla.admin.errors",
    "ShareGroup": "ottla.admin.operations.share_groups",
    "ShareMember": "ottla.admin.operations.share_groups",
    "ShareProgress": "ottla.admin.operations.share_groups",
    "StreamsGroup": "ottla.admin.operations.streams_groups",
    "StreamsMember": "ottla.admin.operations.streams_groups",
    "Subscription": "ottla.admin.operations.telemetry",
    "Subtopology": "ottla.admin.operations.streams_groups",
    "TaskSets": "ottla.admin.operations.streams_groups",
    "TelemetryClient": "ottla.admin.operations.telemetry",
    "Transaction": "ottla.admin.operations.transactions",
    "UnsupportedRequest": "ottla.client.errors",
}
"""Modules are imported when they are first needed: a program that blocks needs no event loop."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
