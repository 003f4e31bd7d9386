"""Voters that are added, removed and updated."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.quorum.host import Host, fetch_request, key, partition

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages import end_quorum_epoch
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from ottla.protocol.messages.update_raft_voter import Listener as UpdatedListener
from ottla.protocol.messages.vote import VoteRequest
from ottla.quorum.effects import Role
from ottla.quorum.errors import NotLeader
from ottla.quorum.replicas import OffsetAndEpoch
from ottla.quorum.requests import topics_of


@pytest.fixture
def leader() -> Host:
    """Node 1 leads a quorum of three, whose voters are committed; node 4 observes."""
    host = Host()
    host.win()
    fetched(host, 2)
    fetched(host, 4)
    return host


def fetched(host: Host, node_id: int) -> None:
    host.ask(fetch_request(key(node_id), host.machine.epoch, host.disk.end), token=f"fetch of {node_id}")


def add_request(node_id: int = 4, **options: Any) -> AddRaftVoterRequest:
    values: dict[str, Any] = {
        "cluster_id": "cluster",
        "timeout_ms": 1000,
        "voter_id": node_id,
        "voter_directory_id": UUID(int=node_id),
        "listeners": [Listener(name="CONTROLLER", host=f"n{node_id}", port=9093)],
    }
    return AddRaftVoterRequest(**(values | options))


def remove_request(node_id: int, directory: int | None = None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id="cluster", voter_id=node_id, voter_directory_id=UUID(int=directory or node_id)
    )


def answer_versions(host: Host, low: int = 0, high: int = 1, error: int = 0) -> None:
    ((sent, _),) = host.take(ApiVersionsRequest)
    feature = SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)
    host.answer(sent, ApiVersionsResponse(error_code=error, api_keys=[], supported_features=[feature]))


def test_an_observer_that_has_caught_up_becomes_a_voter(leader: Host) -> None:
    assert leader.ask(add_request()) is None
    answer_versions(leader)
    assert leader.machine.voters.ids == {1, 2, 3, 4}
    leader.sync()
    assert leader.machine.voter_lags.keys() == {2, 3, 4}
    assert leader.machine.voter_lags[4] == 1
    fetched(leader, 4)
    assert leader.machine.voter_lags[4] == 0
    assert leader.replies.get("asked") is None
    fetched(leader, 2)
    assert leader.replies["asked"].error_code == 0


def test_a_change_can_be_answered_before_it_is_committed(leader: Host) -> None:
    leader.ask(add_request(ack_when_committed=False))
    answer_versions(leader)
    assert leader.replies["asked"].error_code == 0
    again = leader.ask(remove_request(3), token="another")
    assert again.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_second_change_waits_for_the_commit_of_the_first(leader: Host) -> None:
    assert leader.ask(remove_request(3)) is None
    assert leader.machine.voters.ids == {1, 2}
    second = leader.ask(remove_request(2), token="second")
    assert (second.error_code, "try again" in second.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    leader.advance(2000)
    assert leader.replies["asked"].error_code == ErrorCode.REQUEST_TIMED_OUT
    third = leader.ask(remove_request(2), token="third")
    assert third.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "not committed" in third.error_message


def test_a_leader_that_removes_itself_leads_until_that_is_committed(leader: Host) -> None:
    leader.ask(remove_request(1))
    leader.sync()
    assert leader.machine.role is Role.LEADER
    fetched(leader, 2)
    assert leader.machine.role is Role.LEADER
    fetched(leader, 3)
    assert leader.replies["asked"].error_code == 0
    assert leader.machine.role is Role.RESIGNED
    leader.advance(5000)
    assert leader.machine.role is Role.UNATTACHED
    leader.advance(5000)
    assert leader.machine.role is Role.UNATTACHED, "the removal is committed: others elect the leader"


@pytest.fixture
def stopping() -> Host:
    """Node 1 leads a quorum of two, has removed itself, and is to stop before node 2 has that."""
    host = Host(voters=(1, 2))
    host.win()
    fetched(host, 2)
    host.ask(remove_request(1))
    host.sync()
    host.do(host.machine.shut_down(host.now))
    return host


def test_a_leader_that_has_removed_itself_stops_when_that_is_committed(stopping: Host) -> None:
    """Without it, node 2 would take node 1 for a voter, and could not be elected while node 1 is away."""
    assert stopping.machine.role is Role.LEADER
    assert not stopping.machine.has_shut_down
    assert "leads on until the voters [2] have that" in stopping.warnings[-1]
    stopping.do(stopping.machine.append([b"x"], stopping.machine.epoch, stopping.now))
    fetched(stopping, 2)
    assert stopping.machine.role is Role.RESIGNED
    assert not stopping.machine.has_shut_down, "node 2 does not know yet that it may begin an election"
    ((sent, _),) = stopping.take(EndQuorumEpochRequest)
    response = EndQuorumEpochResponse(topics=[])
    stopping.answer(sent, response)
    assert not stopping.machine.has_shut_down
    stopping.advance(1000)
    ((sent, _),) = stopping.take(EndQuorumEpochRequest)
    asked = partition(sent.request)
    found = end_quorum_epoch.ResponsePartitionData(
        partition_index=0, leader_id=asked.leader_id, leader_epoch=asked.leader_epoch
    )
    stopping.answer(sent, EndQuorumEpochResponse(topics=topics_of(end_quorum_epoch.ResponseTopicData, found)))
    assert stopping.machine.has_shut_down


def test_a_leader_that_has_removed_itself_stops_in_the_end(stopping: Host) -> None:
    """Also while the others fetch what they have fetched before, and get no further."""
    before = OffsetAndEpoch(stopping.disk.end.offset - 1, stopping.machine.epoch)
    for _ in range(5):
        assert stopping.machine.role is Role.LEADER
        stopping.ask(fetch_request(key(2), stopping.machine.epoch, before))
        stopping.advance(1000)
    assert stopping.machine.role is Role.RESIGNED


def test_a_removed_voter_leads_once_more_where_the_one_that_is_left_lacks_its_removal() -> None:
    """Node 2 takes node 1 for a voter, and its log is too short for the vote of node 1: only node 1 can be elected."""
    before = Host(voters=(1, 2))
    before.win()
    fetched(before, 2)
    before.ask(remove_request(1))
    before.sync()
    assert before.machine.voters.ids == {2}
    again = Host(voters=(1, 2), disk=before.disk, election=before.disk.election)
    again.win()
    assert (again.machine.role, again.machine.epoch) == (Role.LEADER, before.machine.epoch + 2)
    assert again.machine.voters.ids == {2}, "it does not add itself again"
    fetched(again, 2)
    assert again.machine.role is Role.RESIGNED
    again.advance(5000)
    again.advance(5000)
    assert again.machine.role is Role.UNATTACHED


def test_the_vote_of_a_removed_voter_does_not_count() -> None:
    before = Host(voters=(1, 2))
    before.win()
    fetched(before, 2)
    before.ask(remove_request(1))
    before.sync()
    again = Host(voters=(1, 2), disk=before.disk, election=before.disk.election)
    for _ in range(10):
        again.advance(2000)
    assert again.machine.role is not Role.LEADER
    assert not [each for _, each in again.take(VoteRequest) if not each.topics[0].partitions[0].pre_vote]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add_request(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (add_request(voter_id=-1), ErrorCode.INVALID_REQUEST),
        (add_request(voter_directory_id=UUID(int=0)), ErrorCode.INVALID_REQUEST),
        (add_request(listeners=[]), ErrorCode.INVALID_REQUEST),
        (add_request(listeners=[Listener(name="OTHER", host="n4", port=1)]), ErrorCode.INVALID_REQUEST),
        (add_request(listeners=[Listener(name="CONTROLLER", host="", port=1)]), ErrorCode.INVALID_REQUEST),
        (add_request(listeners=[Listener(name="CONTROLLER", host="n", port=0)]), ErrorCode.INVALID_REQUEST),
        (
            add_request(listeners=[Listener(name="CONTROLLER", host="n", port=1)] * 1000),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            add_request(listeners=[Listener(name="CONTROLLER", host="n" * 32_000, port=1)]),
            ErrorCode.INVALID_REQUEST,
        ),
        (add_request(2), ErrorCode.DUPLICATE_VOTER),
        (add_request(2, voter_directory_id=UUID(int=99)), ErrorCode.DUPLICATE_VOTER),
        (remove_request(9), ErrorCode.VOTER_NOT_FOUND),
        (remove_request(2, directory=99), ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_wrong_changes_are_refused(leader: Host, request_: Any, error: ErrorCode) -> None:
    end = leader.disk.end
    assert leader.ask(request_).error_code == error
    assert leader.disk.end == end


def test_a_replica_that_lags_is_too_old_or_does_not_answer_becomes_no_voter(leader: Host) -> None:
    leader.ask(add_request())
    answer_versions(leader, 0, 0)
    assert leader.replies["asked"].error_code == ErrorCode.INVALID_REQUEST
    leader.ask(add_request())
    answer_versions(leader, error=35)
    assert leader.replies["asked"].error_code == ErrorCode.REQUEST_TIMED_OUT
    leader.advance(600)
    leader.ask(add_request(5))
    answer_versions(leader)
    lagging: Any = leader.replies["asked"]
    assert "has not caught up" in lagging.error_message
    leader.ask(add_request(5))
    ((sent, _),) = leader.take(ApiVersionsRequest)
    leader.do(leader.machine.failed(sent.id, leader.now))
    silent: Any = leader.replies["asked"]
    assert "does not answer" in silent.error_message
    assert leader.machine.voters.ids == {1, 2, 3}


def test_changes_need_the_leader_and_voters_in_the_log() -> None:
    assert Host().ask(add_request()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Host().ask(remove_request(2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    fresh = Host()
    fresh.win()
    assert "not committed a record" in fresh.ask(remove_request(2)).error_message
    static = Host(static=True)
    static.win()
    fetched(static, 2)
    assert static.machine.kraft_version == 0
    assert static.ask(remove_request(2)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_only_voter_cannot_be_removed() -> None:
    host = Host(voters=(1,))
    host.sync()
    assert host.ask(remove_request(1)).error_code == ErrorCode.VOTER_NOT_FOUND


def update_request(node_id: int, host: str = "moved", levels: tuple[int, int] = (0, 1)) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id="cluster",
        current_leader_epoch=1,
        voter_id=node_id,
        voter_directory_id=UUID(int=node_id),
        listeners=[UpdatedListener(name="CONTROLLER", host=host, port=9093)],
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=levels[0], max_supported_version=levels[1]),
    )


def test_a_voter_moves(leader: Host) -> None:
    answer = leader.ask(update_request(2))
    assert (answer.error_code, answer.current_leader.leader_id, answer.current_leader.host) == (0, 1, "n1")
    moved = leader.machine.voters.get(2)
    assert moved is not None
    assert moved.endpoints[0].host == "moved"
    assert leader.ask(update_request(3)).error_code == ErrorCode.REQUEST_TIMED_OUT
    leader.sync()
    fetched(leader, 2)
    end = leader.disk.end
    assert leader.ask(update_request(2)).error_code == 0
    assert leader.disk.end == end


@pytest.mark.parametrize("levels", [(0, 0), (2, 3), (-1, 1), (1, 0)])
def test_levels_that_do_not_fit_are_refused(leader: Host, levels: tuple[int, int]) -> None:
    assert leader.ask(update_request(2, levels=levels)).error_code == ErrorCode.INVALID_REQUEST
    assert leader.ask(update_request(4)).error_code == ErrorCode.VOTER_NOT_FOUND


def test_static_voters_report_themselves_in_memory_alone() -> None:
    host = Host(static=True)
    host.win()
    fetched(host, 2)
    end = host.disk.end
    assert host.ask(update_request(2)).error_code == 0
    assert host.ask(update_request(9)).error_code == ErrorCode.VOTER_NOT_FOUND
    assert host.disk.end == end


def test_a_leader_of_a_bootstrap_checkpoint_writes_its_voters_to_the_log() -> None:
    host = Host()
    host.win()
    answer = partition(host.ask(fetch_request(key(2), 1, host.disk.end)))
    assert answer.high_watermark == 3
    assert [record.type for record in host.machine.voter_records(3)] == [5, 6]
    assert host.machine.kraft_version == 1


def test_kraft_version_is_raised_once_all_voters_have_reported_themselves() -> None:
    host = Host(static=True)
    assert host.machine.voter_lags == {}
    host.win()
    with pytest.raises(ApiError, match="has not committed"):
        host.machine.upgrade_kraft_version(1, 1, host.now)
    fetched(host, 2)
    host.ask(update_request(2))
    with pytest.raises(ApiError, match="the voters 3 have not reported"):
        host.machine.upgrade_kraft_version(1, 1, host.now)
    host.ask(update_request(3))
    assert host.machine.upgrade_kraft_version(1, 1, host.now, validate_only=True) == []
    host.do(host.machine.upgrade_kraft_version(1, 1, host.now))
    assert host.machine.kraft_version == 1
    assert [voter.key for voter in host.machine.voters] == [key(1), key(2), key(3)]
    host.sync()
    fetched(host, 3)
    assert host.machine.high_watermark == host.disk.end.offset
    assert len(partition(host.ask(described_request())).observers) == 0
    assert host.machine.upgrade_kraft_version(1, 1, host.now) == []
    with pytest.raises(ApiError, match="only be raised"):
        host.machine.upgrade_kraft_version(0, 1, host.now)
    with pytest.raises(NotLeader):
        host.machine.upgrade_kraft_version(1, 2, host.now)


def described_request() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
