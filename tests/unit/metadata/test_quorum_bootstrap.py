"""The records with which a controller's term begins."""

import pytest

from ottla.cluster.image import ResourceType
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import initial_features
from ottla.cluster.metadata_log.state import ClusterState
from ottla.cluster.scram_credentials import parse_credential
from ottla.errors import InvalidConfig
from ottla.metadata.initial_users import InitialUser
from ottla.metadata.quorum_bootstrap import initial_records, records_of_new_term, with_initial_users
from ottla.protocol import metadata_records as records
from ottla.security.sasl import credential, salted

MV, TV = "metadata.version", "transaction.version"


def _begun(state: ClusterState, *, is_new: bool, level: int | None = None) -> int:
    """Begin a term; returns how many records it takes."""
    bootstrap = [] if level is None else [framed(record, level) for record in initial_records(level)]
    found, _ = records_of_new_term(state, bootstrap, is_new=is_new, min_insync=2)
    for record in found:
        state.take(record)
    return len(found)


def test_a_new_cluster_begins_with_the_levels_of_its_metadata_version() -> None:
    assert initial_features(7) == {MV: 7}
    assert initial_features(24) == {MV: 24, "group.version": 1, TV: 2}
    state = ClusterState("cluster")
    _begun(state, is_new=True, level=30)
    assert state.image().features == initial_features(30)
    assert _begun(ClusterState("cluster"), is_new=True, level=7) == 1, "without a transaction"


def test_eligible_replicas_come_with_one_number_of_in_sync_ones() -> None:
    state = ClusterState("cluster")
    _begun(state, is_new=True)
    assert state.image().configs == {(ResourceType.BROKER, ""): {"min.insync.replicas": "2"}}
    assert _begun(state, is_new=False) == 0, "it is there"
    older = ClusterState("cluster")
    _begun(older, is_new=True, level=25)
    assert older.image().configs == {}
    older.take(records.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    assert _begun(older, is_new=False) == 1


def test_a_transaction_that_was_left_behind_is_aborted() -> None:
    state = ClusterState("cluster")
    _begun(state, is_new=True)
    state.take(records.BeginTransactionRecord())
    assert (_begun(state, is_new=False), state.in_transaction) == (1, False)
    torn = ClusterState("cluster")
    torn.take(records.BeginTransactionRecord())
    _begun(torn, is_new=False)
    assert torn.image().features == initial_features(30)


ADMIN = InitialUser("SCRAM-SHA-512", "admin", "secret", 4096)


def test_the_users_of_the_setting_are_in_a_new_cluster() -> None:
    state = ClusterState("cluster")
    first, _ = records_of_new_term(state, with_initial_users([], [ADMIN]), is_new=True, min_insync=1)
    for record in first:
        state.take(record)
    assert state.image().features == initial_features(30)
    (text,) = state.configs[ResourceType.USER, "admin"].values()
    known = parse_credential(text)
    assert known is not None
    hashed = salted("SCRAM-SHA-512", "secret", known.salt, known.iterations)
    assert credential("SCRAM-SHA-512", hashed, known.salt, known.iterations) == known


def test_a_user_with_whom_the_directory_was_formatted_keeps_the_password() -> None:
    formatted = with_initial_users([], [ADMIN])
    assert with_initial_users(formatted, [ADMIN._replace(password="another")]) == formatted
    assert len(with_initial_users(formatted, [ADMIN._replace(mechanism="SCRAM-SHA-256")])) == len(formatted) + 1


def test_a_metadata_version_without_users_is_refused() -> None:
    bootstrap = [framed(record, 7) for record in initial_records(7)]
    with pytest.raises(InvalidConfig, match=r"initial\.scram\.users: .* 3\.3-IV3, which has no users of SCRAM"):
        with_initial_users(bootstrap, [ADMIN])
