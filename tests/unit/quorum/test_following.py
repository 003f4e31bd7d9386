"""Followers and observers: how they find the leader, and what they take from it."""

import pytest
from tests.simulation.quorum.disk import snapshot_of
from tests.unit.quorum.host import Host, begin_request, fetch_answer, key, partition, records, vote_request

from ottla.errors import ErrorCode
from ottla.protocol.messages import fetch, fetch_snapshot
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.vote import VoteRequest
from ottla.quorum.control_records import encode_control_batch
from ottla.quorum.effects import AppendFetched, InstallSnapshot, Role, Send, Truncate
from ottla.quorum.replicas import EMPTY_LOG, Endpoint, OffsetAndEpoch, Voter, VoterSet
from ottla.quorum.requests import TOPIC
from ottla.quorum.voter_history import kraft_version_record, voters_record


@pytest.fixture
def follower() -> Host:
    """Node 1 follows node 2 in epoch 3, with five records of epoch 1 and five of epoch 2."""
    host = Host()
    host.disk.append(records(0, 1, 5))
    host.disk.append(records(5, 2, 5))
    host = Host(disk=host.disk)
    host.ask(begin_request(2, 3))
    assert host.machine.role is Role.FOLLOWER
    return host


def fetching(host: Host) -> tuple[Send, fetch.FetchPartition]:
    """The newest fetch."""
    sent, request = host.take(FetchRequest)[-1]
    return sent, partition(request)


def take(host: Host, response: fetch.FetchResponse) -> None:
    host.answer(fetching(host)[0], response)


def test_a_follower_fetches_again_when_its_log_is_synced(follower: Host) -> None:
    sent, asked = fetching(follower)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (10, 2, 3)
    follower.answer(sent, fetch_answer(2, 3, records(10, 3), high_watermark=11))
    assert follower.disk.end == (11, 3)
    assert follower.machine.high_watermark == 11
    assert follower.take(FetchRequest) == []
    follower.sync()
    assert fetching(follower)[1].fetch_offset == 11


def test_records_that_diverge_are_removed(follower: Host) -> None:
    take(follower, fetch_answer(2, 3, diverging=OffsetAndEpoch(7, 1)))
    assert follower.disk.end == (5, 1)
    assert fetching(follower)[1].fetch_offset == 5


def test_committed_records_are_not_removed(follower: Host) -> None:
    take(follower, fetch_answer(2, 3, high_watermark=8))
    take(follower, fetch_answer(2, 3, diverging=OffsetAndEpoch(6, 2)))
    assert follower.disk.end.offset == 10
    assert "lacks committed records from offset 6 on" in follower.warnings[0]
    assert not any(isinstance(effect, Truncate) for effect in follower.effects)


def test_damaged_and_misplaced_batches_are_left_out(follower: Host) -> None:
    damaged = bytearray(records(11, 3))
    damaged[-1] ^= 1
    take(follower, fetch_answer(2, 3, records(10, 3) + bytes(damaged)))
    assert follower.disk.end.offset == 11
    follower.sync()
    for wrong in (records(12, 3), records(11, 4), records(11, 2), bytes(100), b"\xff" * 200):
        take(follower, fetch_answer(2, 3, wrong))
        assert follower.disk.end.offset == 11
        assert not any(isinstance(effect, AppendFetched) for effect in follower.effects)
        follower.advance(600)


def test_an_answer_to_an_earlier_end_of_the_log_is_ignored(follower: Host) -> None:
    sent, _ = fetching(follower)
    follower.disk.append(records(10, 3))
    follower.answer(sent, fetch_answer(2, 3, records(10, 3)))
    assert follower.disk.end.offset == 11


def test_a_snapshot_is_fetched_in_pieces_and_replaces_the_log(follower: Host) -> None:
    snapshot = OffsetAndEpoch(20, 3)
    content = snapshot_of(snapshot, follower.machine.voter_records(0), b"state")
    take(follower, fetch_answer(2, 3, snapshot=snapshot))
    for start in range(0, len(content), 100):
        sent, request = follower.take(FetchSnapshotRequest)[-1]
        assert partition(request).position == start
        follower.answer(sent, piece(snapshot, content, start))
    assert isinstance(follower.effects[-1], InstallSnapshot)
    assert follower.machine.next_deadline() == follower.now
    follower.advance(0)
    assert follower.disk.end == snapshot
    assert follower.machine.high_watermark == 20
    assert follower.machine.voters.ids == {1, 2, 3}
    assert fetching(follower)[1].fetch_offset == 20


def piece(snapshot: OffsetAndEpoch, content: bytes, start: int, error: int = 0) -> fetch_snapshot.FetchSnapshotResponse:
    found = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=2, leader_epoch=3),
        size=len(content),
        position=start,
        unaligned_records=content[start : start + 100],
    )
    topics = [fetch_snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[found])]
    return fetch_snapshot.FetchSnapshotResponse(topics=topics)


@pytest.mark.parametrize("case", ["gone", "other position", "empty", "longer than its size", "another snapshot"])
def test_a_snapshot_that_cannot_be_fetched_is_given_up(follower: Host, case: str) -> None:
    snapshot = OffsetAndEpoch(20, 3)
    take(follower, fetch_answer(2, 3, snapshot=snapshot))
    ((sent, _),) = follower.take(FetchSnapshotRequest)
    response = piece(snapshot, bytes(150), 0, error=ErrorCode.SNAPSHOT_NOT_FOUND if case == "gone" else 0)
    found = partition(response)
    if case == "other position":
        found.position = 50
    elif case == "empty":
        found.unaligned_records = b""
    elif case == "longer than its size":
        found.size = 99
    elif case == "another snapshot":
        found.snapshot_id.epoch = 2
    follower.answer(sent, response)
    follower.advance(1000)
    assert follower.disk.end.offset == 10
    assert follower.take(FetchSnapshotRequest) == []
    assert fetching(follower)[1].fetch_offset == 10


def test_a_damaged_snapshot_is_fetched_again(follower: Host) -> None:
    snapshot = OffsetAndEpoch(20, 3)
    take(follower, fetch_answer(2, 3, snapshot=snapshot))
    ((sent, _),) = follower.take(FetchSnapshotRequest)
    effects = follower.machine.answered(sent.id, piece(snapshot, bytes(50), 0), follower.now)
    assert isinstance(effects[-1], InstallSnapshot)
    follower.do(follower.machine.snapshot_failed(snapshot, follower.now))
    assert "damaged" in follower.warnings[-1]
    assert fetching(follower)[1].fetch_offset == 10
    assert follower.machine.high_watermark is None


@pytest.mark.parametrize("snapshot", [OffsetAndEpoch(8, 2), OffsetAndEpoch(20, -1), EMPTY_LOG])
def test_a_snapshot_without_committed_records_is_refused(follower: Host, snapshot: OffsetAndEpoch) -> None:
    take(follower, fetch_answer(2, 3, high_watermark=9))
    take(follower, fetch_answer(2, 3, snapshot=snapshot))
    assert follower.take(FetchSnapshotRequest) == []
    assert "of no use" in follower.warnings[-1]


def test_the_high_watermark_of_a_follower_is_within_its_log_and_never_goes_back(follower: Host) -> None:
    take(follower, fetch_answer(2, 3, high_watermark=2**62))
    assert follower.machine.high_watermark == 10
    take(follower, fetch_answer(2, 3, high_watermark=4))
    assert follower.machine.high_watermark == 10


def test_an_observer_finds_the_leader_by_bootstrap_servers_and_stays_an_observer() -> None:
    host = Host(node_id=4, bootstrap_servers=(("n9", 9093), ("n2", 9093)))
    sent, _ = fetching(host)
    assert (sent.to.node_id, sent.to.host) == (None, "n9")
    host.answer(sent, fetch_answer(3, 7, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (host.machine.role, host.machine.epoch, host.machine.leader_id) == (Role.FOLLOWER, 7, 3)
    sent, _ = fetching(host)
    assert (sent.to.node_id, sent.to.host) == (3, "n3")
    host.advance(60_000)
    assert host.machine.role is Role.FOLLOWER


def test_a_replica_notices_that_all_whom_it_can_ask_belong_to_another_cluster() -> None:
    host = Host(node_id=4, bootstrap_servers=(("n9", 9093), ("n2", 9093)))
    stranger = fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, responses=[])
    take(host, stranger)
    assert not host.machine.meets_only_strangers, "n2 has not answered yet"
    take(host, stranger)
    assert host.machine.meets_only_strangers
    host.advance(1000)
    take(host, fetch_answer(3, 7))
    assert not host.machine.meets_only_strangers


def test_a_leader_without_a_known_address_is_looked_for() -> None:
    host = Host(node_id=4, bootstrap_servers=(("n2", 9093),))
    host.answer(fetching(host)[0], fetch_answer(8, 7, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (host.machine.role, host.machine.leader_id) == (Role.UNATTACHED, 8)
    response = fetch_answer(8, 7, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response.node_endpoints = [fetch.NodeEndpoint(node_id=8, host="n8", port=9093)]
    host.answer(fetching(host)[0], response)
    assert host.machine.leader is not None
    assert host.machine.leader.host == "n8"


def test_when_the_leader_does_not_answer_others_are_asked_for_a_newer_one(follower: Host) -> None:
    sent, _ = fetching(follower)
    follower.do(follower.machine.failed(sent.id, follower.now))
    sent, _ = fetching(follower)
    assert sent.to.node_id is None
    follower.answer(sent, fetch_answer(3, 4, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (follower.machine.epoch, follower.machine.leader_id) == (4, 3)


def test_requests_are_not_repeated_without_a_pause(follower: Host) -> None:
    sent = 0
    for _ in range(2000):
        for each in follower.sent:
            sent += 1
            follower.do(follower.machine.failed(each.id, follower.now))
            follower.sent.remove(each)
        follower.advance(1)
    assert sent < 60


def test_a_voter_that_does_not_get_records_stands_for_election(follower: Host) -> None:
    follower.advance(1999)
    assert follower.machine.role is Role.FOLLOWER
    follower.advance(1)
    assert follower.machine.role is Role.PROSPECTIVE


def test_voters_count_from_their_append_on_and_no_longer_when_they_are_truncated(follower: Host) -> None:
    two = VoterSet(each for each in follower.machine.voters if each.key.node_id < 3)
    control = snapshot_batch(10, 3, two)
    take(follower, fetch_answer(2, 3, control))
    assert follower.machine.voters.ids == {1, 2}
    assert [record.type for record in follower.machine.voter_records(10)] == [5, 6]
    follower.sync()
    take(follower, fetch_answer(2, 3, diverging=OffsetAndEpoch(10, 2)))
    assert follower.machine.voters.ids == {1, 2, 3}


def snapshot_batch(base: int, epoch: int, voters: VoterSet) -> bytes:
    rows = [kraft_version_record(1), voters_record(voters)]
    return bytes(encode_control_batch(rows, base_offset=base, epoch=epoch, now_ms=0))


def test_two_leaders_of_an_epoch_are_named_and_the_second_ignored(follower: Host) -> None:
    answer = partition(follower.ask(begin_request(3, 3)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert follower.machine.leader_id == 2
    assert "two leaders of epoch 3" in follower.warnings[0]


def test_a_voter_reports_its_new_addresses_to_the_leader() -> None:
    host = Host()
    moved = host.machine.voters.with_voter(Voter(key(1), (Endpoint("CONTROLLER", "elsewhere", 9093),), 0, 1))
    host.disk.snapshots[EMPTY_LOG] = snapshot_of(EMPTY_LOG, [kraft_version_record(1), voters_record(moved)], b"")
    host = Host(disk=host.disk)
    host.ask(begin_request(2, 3))
    take(host, fetch_answer(2, 3))
    take_all(host, 2000)
    (sent, request), *_ = host.take(UpdateRaftVoterRequest)
    assert [each.host for each in request.listeners] == ["n1"]
    host.answer(sent, UpdateRaftVoterResponse())
    assert host.take(UpdateRaftVoterRequest) == []


def take_all(host: Host, ms: int) -> None:
    """Answer all fetches for a while."""
    for _ in range(ms // 100):
        host.advance(100)
        for sent, _ in host.take(FetchRequest):
            host.answer(sent, fetch_answer(2, 3))


def test_an_observer_with_a_leader_stays_in_its_epoch_whatever_strangers_ask() -> None:
    host = Host(node_id=4)
    take(host, fetch_answer(3, 7, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    take(host, fetch_answer(3, 7))
    for pre_vote in (True, False):
        answer = partition(host.ask(vote_request(77, 9, OffsetAndEpoch(100, 8), pre_vote=pre_vote, receiver=key(4))))
        assert (answer.vote_granted, answer.leader_epoch) == (False, 7)
    host.advance(2000)
    assert partition(host.ask(vote_request(5, 9, OffsetAndEpoch(100, 8), receiver=key(4)))).vote_granted
    assert host.machine.epoch == 9


def test_an_observer_of_a_later_epoch_than_the_leaders_reports_it() -> None:
    host = Host(node_id=4, bootstrap_servers=(("n2", 9093),))
    host.advance(2000)
    host.ask(vote_request(77, 9, OffsetAndEpoch(100, 8), receiver=key(4)))
    reported = []
    for _ in range(50):
        host.advance(100)
        for sent, _ in host.take(FetchRequest):
            host.answer(sent, fetch_answer(3, 7, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
        reported += [(host.now, sent.to.node_id, partition(request)) for sent, request in host.take(VoteRequest)]
    ((when, to, asked),) = reported
    assert (when, to, asked.replica_epoch, asked.pre_vote) == (6000, 3, 9, True)


def test_a_voter_whose_leader_refuses_connections_does_not_wait_for_the_fetch_timeout(follower: Host) -> None:
    while follower.machine.role is Role.FOLLOWER:
        follower.advance(100)
        for sent in follower.sent:
            follower.do(follower.machine.failed(sent.id, follower.now))
        follower.sent.clear()
    assert follower.machine.role is Role.PROSPECTIVE
    assert follower.now < 1000


def test_a_follower_whose_leader_refuses_connections_grants_pre_votes(follower: Host) -> None:
    take(follower, fetch_answer(2, 3))
    asked = vote_request(3, 3, OffsetAndEpoch(10, 2), pre_vote=True)
    assert not partition(follower.ask(asked)).vote_granted
    failed = 0
    while failed < 2:
        follower.advance(10)
        for sent, _ in follower.take(FetchRequest):
            failed += sent.to.node_id == 2
            follower.do(follower.machine.failed(sent.id, follower.now))
    assert follower.machine.role is Role.FOLLOWER
    assert partition(follower.ask(asked)).vote_granted


def test_voters_without_a_majority_are_named_after_a_while() -> None:
    host = Host()
    for _ in range(100):
        host.advance(1000)
        for sent in host.sent:
            host.do(host.machine.failed(sent.id, host.now))
        host.sent.clear()
    assert 1 <= len(host.warnings) <= 2
    assert "2 of the voters [1, 2, 3] have to run and to reach each other" in host.warnings[0]
    assert "`ottla quorum recover`" in host.warnings[0]


def test_a_voter_whose_directory_is_another_one_says_so() -> None:
    host = Host(directory=99)
    host.ask(begin_request(2, 1))
    host.now += 4000
    take(host, fetch_answer(2, 1))
    (warning,) = host.warnings
    assert "the voter 1 has the directory AAAAAAAAAAAAAAAAAAAAAQ, and this node has AAAAAAAAAAAAAAAAAAAAYw" in warning
    assert "Give one of two nodes a node.id of its own" in warning


def test_wrong_bootstrap_servers_are_named_after_a_while() -> None:
    host = Host(node_id=4, voters=(), static=True, bootstrap_servers=(("nowhere", 1),))
    for _ in range(40):
        host.advance(1000)
        for sent in host.sent:
            host.do(host.machine.failed(sent.id, host.now))
        host.sent.clear()
    assert host.warnings == [
        "no leader of the metadata quorum for 30 s: none of controller.quorum.bootstrap.servers (nowhere:1) knows one; "
        "check the addresses"
    ]


def test_a_new_node_joins_a_quorum_of_millions_of_elections() -> None:
    host = Host(4, (), bootstrap_servers=(("n2", 9093),))
    take(host, fetch_answer(2, 3_000_000, high_watermark=1))
    assert (host.machine.epoch, host.machine.leader_id) == (3_000_000, 2)


def test_no_answer_uses_the_epochs_up() -> None:
    host = Host(4, (), bootstrap_servers=(("n2", 9093),))
    take(host, fetch_answer(2, 2**31 - 2))
    assert host.machine.epoch == 0
