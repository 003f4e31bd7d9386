"""Clusters under a quorum that are broken on purpose, each by one careless decision; see `broken`."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ottla.cluster import broker_sessions, replica_directories
from ottla.cluster.broker_sessions import Heartbeat, Standing
from ottla.cluster.commands import SetPartitions
from ottla.cluster.elections import Outages
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.isr_changes import IsrChange
from ottla.cluster.metadata_log.partitions import LOST
from ottla.metadata import decisions
from ottla.metadata.broker_lifecycle import BrokerLifecycle
from ottla.quorum.state import QuorumState
from ottla.replication.decisions.in_sync import InSyncReplicas


def endless_lease() -> AbstractContextManager[Any]:
    """A broker goes on by itself, however long ago the controller has answered it."""
    return patch.object(BrokerLifecycle, "holds", lambda _: True)


def early_unfencing() -> AbstractContextManager[Any]:
    """The controller unfences a broker with its first heartbeat, whatever it has read of the log."""
    return patch.object(broker_sessions, "_fenced_after", _unfenced)


def _unfenced(heartbeat: Heartbeat, _registered_at: int) -> Standing:
    return Standing.SHUTDOWN_NOW if heartbeat.wants_shutdown else Standing.UNFENCED


def stale_alter_partition() -> AbstractContextManager[Any]:
    """The controller takes the in-sync replicas that any broker names as a leader, perhaps a former one, and does not
    look at the epochs of partition and brokers."""

    def believe(image: MetadataImage, _outages: Outages, change: IsrChange) -> SetPartitions:
        topic = image.topics_by_id[change.topic_id]
        partition = topic.partitions[change.partition]
        in_sync = change.isr if partition.leader in change.isr else (partition.leader, *change.isr)
        changed = partition._replace(
            isr=in_sync, partition_epoch=partition.partition_epoch + 1, last_known_leader=NO_LEADER
        )
        return SetPartitions(topic.name, (changed,))

    return patch.object(decisions, "plan_isr_change", believe)


def uncommitted_shrink() -> AbstractContextManager[Any]:
    """A leader does without followers as soon as it has asked for that."""

    def maximal_isr(self: InSyncReplicas) -> Any:
        return self.isr if self.pending is None else self.pending.isr

    return patch.object(InSyncReplicas, "maximal_isr", property(maximal_isr))


def full_as_lost() -> AbstractContextManager[Any]:
    """A broker reports replicas on a full disk as if their records were gone."""
    return patch.object(replica_directories, "marked_full", lambda _directory: LOST)


def removed_voters_wait() -> AbstractContextManager[Any]:
    """A voter begins no election once its removal is in its log, committed or not."""
    return patch.object(QuorumState, "begins_elections", QuorumState.is_voter)
