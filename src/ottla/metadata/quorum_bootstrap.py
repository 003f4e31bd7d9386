"""What a controller appends when its term begins: the first records of a new cluster, or the end of a torn change."""

from collections.abc import Sequence

from ottla.cluster.metadata_log.levels import HIGHEST, METADATA_VERSION, TRANSACTIONS_SINCE, initial_features
from ottla.cluster.metadata_log.state import ClusterState
from ottla.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
    decode_record,
)
from ottla.protocol.schema import Message

NO_MIGRATION = 0
_MIGRATION_STATE_SINCE = 8


def records_of_new_term(
    state: ClusterState, bootstrap: Sequence[bytes], *, is_new: bool
) -> tuple[list[Message], int | None]:
    """The records, and the `metadata.version` to write them at; None for the state's.

    `bootstrap` are framed records for a cluster that `is_new`; without any it has the newest levels. A controller may
    have gone before it had appended all of them: the transaction that it began is aborted, and they are appended anew.
    """
    records: list[Message] = []
    if state.in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
        is_new = is_new or not state.metadata_version
    if not is_new:
        return records, state.metadata_version or None
    first = [decode_record(value)[0] for value in bootstrap] or initial_records()
    level = next(
        (
            record.feature_level
            for record in first
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION
        ),
        HIGHEST,
    )
    if level >= _MIGRATION_STATE_SINCE:
        first.append(ZkMigrationStateRecord(zk_migration_state=NO_MIGRATION))
    if level >= TRANSACTIONS_SINCE:
        records += [BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]
    else:
        records += first
    return records, level


def initial_records(metadata_version: int = HIGHEST) -> list[Message]:
    """The feature levels of a new cluster, `metadata.version` first."""
    levels = initial_features(metadata_version)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
