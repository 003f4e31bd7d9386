"""Elections: grants and refusals, and what is saved before they are answered."""

import pytest
from tests.unit.quorum.host import Host, begin_request, fetch_answer, key, partition, vote_answer, vote_request

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.quorum.effects import Reply, Role, SaveElection
from ottla.quorum.election_state import ElectionState
from ottla.quorum.replicas import OffsetAndEpoch, ReplicaKey


def test_a_vote_is_saved_before_it_is_answered_and_cast_once() -> None:
    host = Host()
    assert partition(host.ask(vote_request(2, 1))).vote_granted
    kinds = [type(effect) for effect in host.effects]
    assert kinds.index(Reply) > max(index for index, kind in enumerate(kinds) if kind is SaveElection)
    assert host.disk.election == ElectionState(1, None, key(2))
    assert not partition(host.ask(vote_request(3, 1))).vote_granted
    assert partition(host.ask(vote_request(2, 1))).vote_granted

    again = Host(disk=host.disk, election=host.disk.election)
    assert not partition(again.ask(vote_request(3, 1))).vote_granted
    assert partition(again.ask(vote_request(2, 1))).vote_granted
    assert partition(again.ask(vote_request(3, 2))).vote_granted


def test_a_candidate_whose_log_lacks_records_gets_no_vote() -> None:
    host = Host()
    host.win()
    end = host.disk.end
    epoch = host.machine.epoch
    assert not partition(host.ask(vote_request(2, epoch + 1, OffsetAndEpoch(end.offset - 1, end.epoch)))).vote_granted
    assert partition(host.ask(vote_request(3, epoch + 1, end))).vote_granted
    assert host.machine.role is Role.UNATTACHED


def test_pre_votes_are_not_saved_and_change_nothing() -> None:
    host = Host()
    saved = host.disk.election
    assert partition(host.ask(vote_request(2, 0, pre_vote=True))).vote_granted
    assert partition(host.ask(vote_request(3, 0, pre_vote=True))).vote_granted
    assert host.disk.election == saved


def test_a_replica_that_fetches_from_a_leader_grants_no_pre_vote() -> None:
    host = Host()
    host.ask(begin_request(2, 1))
    assert partition(host.ask(vote_request(3, 1, pre_vote=True))).vote_granted
    ((sent, _),) = host.take(FetchRequest)[-1:]
    host.answer(sent, fetch_answer(2, 1))
    answer = partition(host.ask(vote_request(3, 1, pre_vote=True)))
    assert not answer.vote_granted
    assert (answer.leader_id, answer.leader_epoch) == (2, 1)


def test_an_election_is_begun_only_if_a_majority_would_vote() -> None:
    host = Host()
    host.advance(1000)
    assert host.machine.role is Role.PROSPECTIVE
    requests = host.take(VoteRequest)
    assert [request.topics[0].partitions[0].pre_vote for _, request in requests] == [True, True]
    for sent, _ in requests:
        host.answer(sent, vote_answer(0, granted=False))
    assert (host.machine.role, host.machine.epoch) == (Role.UNATTACHED, 0)


def test_a_voter_without_pre_votes_has_the_election_begin() -> None:
    host = Host()
    host.advance(1000)
    (sent, _), _ = host.take(VoteRequest)
    host.do(host.machine.failed(sent.id, host.now, unsupported=True))
    assert (host.machine.role, host.machine.epoch) == (Role.CANDIDATE, 1)
    assert host.disk.election == ElectionState(1, None, key(1))


def test_votes_are_not_asked_for_with_an_unsynced_log() -> None:
    host = Host()
    host.win()
    host.do(host.machine.append([b"x"], host.machine.epoch, host.now))
    host.ask(vote_request(2, host.machine.epoch + 1))
    host.advance(5000)
    assert host.machine.role is Role.PROSPECTIVE
    assert host.take(VoteRequest) == []
    host.sync()
    assert len(host.take(VoteRequest)) == 2


def test_a_restarted_candidate_goes_on_in_its_epoch_and_a_restarted_leader_does_not_lead() -> None:
    host = Host(election=ElectionState(4, None, key(1)))
    assert (host.machine.role, host.machine.epoch) == (Role.CANDIDATE, 4)
    host = Host(election=ElectionState(4, 1, None))
    assert (host.machine.role, host.machine.leader_id) == (Role.RESIGNED, None)
    host.advance(1000)
    assert (host.machine.role, host.machine.epoch) == (Role.PROSPECTIVE, 5)


def test_the_only_voter_leads_at_once() -> None:
    host = Host(voters=(1,))
    assert (host.machine.role, host.machine.epoch) == (Role.LEADER, 1)
    assert host.machine.high_watermark is None
    host.sync()
    assert host.machine.high_watermark == host.disk.end.offset


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote_request(2, -1), ErrorCode.INVALID_REQUEST),
        (vote_request(2, 1, OffsetAndEpoch(-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote_request(2, 1, OffsetAndEpoch(0, -1)), ErrorCode.INVALID_REQUEST),
        (vote_request(2, 1, OffsetAndEpoch(0, 1)), ErrorCode.INVALID_REQUEST),
        (vote_request(2, 1, OffsetAndEpoch(0, 2), pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote_request(-1, 1), ErrorCode.INVALID_REQUEST),
        (vote_request(1, 1), ErrorCode.INVALID_REQUEST),
        (vote_request(9, 0x7FFF_FFFF), ErrorCode.INVALID_REQUEST),
        (vote_request(9, 50_000_000), ErrorCode.INVALID_REQUEST),
        (vote_request(2, 1, receiver=key(3)), ErrorCode.INVALID_VOTER_KEY),
        (vote_request(2, 1, receiver=ReplicaKey(1, key(7).directory_id)), ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_wrong_requests_for_votes_are_refused(request_: VoteRequest, error: ErrorCode) -> None:
    host = Host()
    answer = partition(host.ask(request_))
    assert (answer.error_code, answer.vote_granted) == (error, False)
    assert host.machine.epoch <= 1
    assert host.disk.election is None or host.disk.election.voted is None


def test_requests_of_other_clusters_and_about_other_partitions_are_refused() -> None:
    host = Host()
    answer = host.ask(vote_request(2, 1, cluster_id="another"))
    assert (answer.error_code, answer.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, [])
    wide = vote_request(2, 1)
    wide.topics = wide.topics * 10_000
    assert host.ask(wide).error_code == ErrorCode.INVALID_REQUEST
    empty = vote_request(2, 1)
    empty.topics = []
    assert host.ask(empty).error_code == ErrorCode.INVALID_REQUEST
    other = vote_request(2, 1)
    other.topics[0].topic_name = "mine"
    assert host.ask(other).error_code == ErrorCode.INVALID_REQUEST
    assert host.machine.epoch == 0


def test_a_node_with_this_nodes_id_is_named() -> None:
    host = Host()
    host.ask(vote_request(1, 1))
    assert "another node has this node's id 1" in host.warnings[0]


def test_a_node_of_another_cluster_is_named() -> None:
    host = Host()
    host.advance(1000)
    (sent, _), _ = host.take(VoteRequest)
    host.answer(sent, VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=[]))
    assert "n2:9093 belongs to another cluster" in host.warnings[0]


def test_late_and_repeated_answers_are_ignored() -> None:
    host = Host()
    host.advance(1000)
    (first, _), (second, _) = host.take(VoteRequest)
    host.answer(first, vote_answer(0, granted=True))
    assert (host.machine.role, host.machine.epoch) == (Role.CANDIDATE, 1)
    host.answer(first, vote_answer(1, granted=True))
    host.answer(second, vote_answer(1, granted=True))
    assert host.machine.role is Role.CANDIDATE


def test_a_warning_is_given_once_in_a_while() -> None:
    host = Host(1, (1,))
    for _ in range(100):
        host.ask(vote_request(1, 1))
    assert len(host.warnings) == 1, "of a node with the same id, which asks again and again"
    host.advance(30_000)
    host.ask(vote_request(1, 1))
    assert len(host.warnings) == 2


def test_a_voter_far_behind_believes_answers_alone() -> None:
    host = Host()
    host.ask(vote_request(2, 5_000))
    assert host.machine.epoch == 0, "anybody may send that"
    host.advance(1000)
    (sent, _), _ = host.take(VoteRequest)
    host.answer(sent, vote_answer(5_000, granted=False))
    assert host.machine.epoch == 5_000
    host.ask(vote_request(2, 5_001))
    assert host.machine.epoch == 5_001


def test_the_last_epoch_is_named_and_not_passed() -> None:
    host = Host(election=ElectionState(2**31 - 3, None, None))
    host.advance(1000)
    (sent, _), _ = host.take(VoteRequest)
    host.answer(sent, vote_answer(2**31 - 3, granted=True))
    assert (host.machine.role, host.machine.epoch) == (Role.UNATTACHED, 2**31 - 3)
    assert "no leader can be elected: epoch 2147483645 is the last one" in host.warnings[-1]
