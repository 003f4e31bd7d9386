"""What a controller appends when its term begins: the first records of a new cluster, or the end of a torn change."""

from collections.abc import Sequence

from ottla.cluster.image import ResourceType
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import HIGHEST, NAMES, SCRAM_SINCE, TRANSACTIONS_SINCE, initial_features
from ottla.cluster.metadata_log.records import messages_for
from ottla.cluster.metadata_log.state import ClusterState
from ottla.cluster.min_insync import unify_min_insync
from ottla.errors import InvalidConfig
from ottla.metadata.initial_users import SETTING, InitialUser
from ottla.metadata.quorum.scram_arguments import user_record
from ottla.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    decode_record,
)
from ottla.protocol.schema import Message


def records_of_new_term(
    state: ClusterState, bootstrap: Sequence[bytes | Message], *, is_new: bool, min_insync: int
) -> tuple[list[Message], int | None]:
    """The records, and the `metadata.version` to write them at; None for the state's.

    `bootstrap` are records, framed or not, for a cluster that `is_new`; without any it has the newest levels. A
    controller may have gone before it had appended all of them: the transaction that it began is aborted, and they are
    appended anew.

    `min_insync` is `min.insync.replicas` in the controller's file, for `unify_min_insync`.
    """
    records: list[Message] = []
    if state.in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
        is_new = is_new or not state.metadata_version
    if not is_new:
        unified = unify_min_insync(state.features, state.configs, min_insync)
        return [*records, *messages_for(unified, state)], state.metadata_version or None
    first = [value if isinstance(value, Message) else decode_record(value)[0] for value in bootstrap]
    first = first or initial_records()
    begun = ClusterState()
    for record in first:
        begun.take(record)
    first += messages_for(unify_min_insync(begun.features, begun.configs, min_insync), begun)
    level = begun.metadata_version or HIGHEST
    if level >= TRANSACTIONS_SINCE:
        records += [BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]
    else:
        records += first
    return records, level


def initial_records(metadata_version: int = HIGHEST) -> list[Message]:
    """The feature levels of a new cluster, `metadata.version` first."""
    levels = initial_features(metadata_version)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def with_initial_users(bootstrap: Sequence[bytes], users: Sequence[InitialUser]) -> list[bytes]:
    """The first records of a cluster with users of SCRAM that they do not have; salting takes milliseconds for each.

    Raises `InvalidConfig` for a `metadata.version` that has no users.
    """
    first = [decode_record(value)[0] for value in bootstrap] or initial_records()
    begun = ClusterState()
    for record in first:
        begun.take(record)
    level = begun.metadata_version or HIGHEST
    if level < SCRAM_SINCE:
        raise InvalidConfig(
            f"{SETTING}: the cluster is formatted with metadata.version {NAMES[level]}, which has no users of SCRAM"
        )
    for user in users:
        known = begun.configs.get((ResourceType.USER, user.name), {})
        if user.mechanism not in known:
            first.append(user_record(user.mechanism, user.name, user.password, user.iterations))
    return [framed(record, level) for record in first]
