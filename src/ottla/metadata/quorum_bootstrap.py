"""What a controller appends when its term begins: the first records of a new cluster, or the end of a torn change."""

from collections.abc import Sequence

from ottla.cluster.image import CLUSTER_DEFAULT, ResourceType
from ottla.cluster.metadata_log.levels import (
    ELIGIBLE_LEADER_REPLICAS,
    HIGHEST,
    TRANSACTIONS_SINCE,
    initial_features,
)
from ottla.cluster.metadata_log.state import ClusterState
from ottla.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    decode_record,
)
from ottla.protocol.schema import Message

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def records_of_new_term(
    state: ClusterState, bootstrap: Sequence[bytes], *, is_new: bool, min_insync: int
) -> tuple[list[Message], int | None]:
    """The records, and the `metadata.version` to write them at; None for the state's.

    `bootstrap` are framed records for a cluster that `is_new`; without any it has the newest levels. A controller may
    have gone before it had appended all of them: the transaction that it began is aborted, and they are appended anew.

    Where there are eligible leader replicas, all brokers have one `min.insync.replicas` from the log, at first
    `min_insync`, that of the controller's file: with another one, a broker would commit what the controller takes for
    not committed (KIP-966).
    """
    records: list[Message] = []
    if state.in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
        is_new = is_new or not state.metadata_version
    if not is_new:
        return [*records, *_one_min_insync(state, min_insync)], state.metadata_version or None
    first = [decode_record(value)[0] for value in bootstrap] or initial_records()
    begun = ClusterState()
    for record in first:
        begun.take(record)
    first += _one_min_insync(begun, min_insync)
    level = begun.metadata_version or HIGHEST
    if level >= TRANSACTIONS_SINCE:
        records += [BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]
    else:
        records += first
    return records, level


def _one_min_insync(state: ClusterState, min_insync: int) -> list[Message]:
    """The setting that eligible leader replicas need, unless it is there."""
    known = state.configs.get((ResourceType.BROKER, CLUSTER_DEFAULT), {})
    if not state.features.get(ELIGIBLE_LEADER_REPLICAS) or MIN_INSYNC_REPLICAS in known:
        return []
    return [
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name=CLUSTER_DEFAULT,
            name=MIN_INSYNC_REPLICAS,
            value=str(min_insync),
        )
    ]


def initial_records(metadata_version: int = HIGHEST) -> list[Message]:
    """The feature levels of a new cluster, `metadata.version` first."""
    levels = initial_features(metadata_version)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
