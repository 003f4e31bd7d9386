"""The quorum of controllers, without controllers: each command is answered from a script."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.admin.test_operations import run

from ottla.admin import Address, QuorumListener, RequestRefused
from ottla.admin.operations import quorum
from ottla.admin.operations.core import Ask
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages import describe_quorum as wire
from ottla.protocol.messages.add_raft_voter import AddRaftVoterResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse

ID = UUID(int=7)
LISTENER = QuorumListener("CONTROLLER", Address("c3", 9093))


def answer_of(part: wire.ResponsePartitionData, **others: Any) -> wire.DescribeQuorumResponse:
    return wire.DescribeQuorumResponse(topics=[wire.ResponseTopicData(topic_name="m", partitions=[part])], **others)


def test_voters_observers_and_how_far_they_are_behind() -> None:
    voters = [wire.ReplicaState(replica_id=each, log_end_offset=end) for each, end in ((3, 10), (1, 12), (2, -1))]
    observer = wire.ReplicaState(
        replica_id=9, replica_directory_id=ID, log_end_offset=13, last_fetch_timestamp=5, last_caught_up_timestamp=4
    )
    part = wire.ResponsePartitionData(
        partition_index=0, leader_id=1, leader_epoch=6, high_watermark=11, current_voters=voters, observers=[observer]
    )
    node = wire.Node(node_id=9, listeners=[wire.Listener(name="CONTROLLER", host="c3", port=9093)])
    found, sent = run(quorum.describe_quorum(), lambda *_: answer_of(part, nodes=[node]))
    assert sent == ["DescribeQuorum"]
    assert (found.leader, found.epoch, found.high_watermark) == (1, 6, 11)
    assert [(each.node_id, each.lag, each.directory_id) for each in found.voters] == [
        (1, 0, None),
        (2, 12, None),
        (3, 2, None),
    ]
    assert {(each.last_fetch_ms, each.caught_up_ms, each.listeners) for each in found.voters} == {(None, None, ())}
    assert found.observers == (quorum.QuorumReplica(9, ID, 13, 0, 5, 4, (LISTENER,)),)
    assert str(found.observers[0].listeners[0]) == "CONTROLLER://c3:9093"


@pytest.mark.parametrize(
    "answer",
    [
        wire.DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[]),
        answer_of(
            wire.ResponsePartitionData(
                partition_index=0,
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                leader_id=-1,
                leader_epoch=-1,
                high_watermark=-1,
                current_voters=[],
                observers=[],
            )
        ),
    ],
)
def test_a_refusal_is_a_sentence(answer: wire.DescribeQuorumResponse) -> None:
    with pytest.raises(RequestRefused, match="the quorum of controllers cannot be described: this user is not allowed"):
        run(quorum.describe_quorum(), lambda *_: answer)


def test_of_the_controllers_the_leader_is_asked() -> None:
    codes = {None: ErrorCode.NOT_LEADER_OR_FOLLOWER, "c1": None, "c2": ErrorCode.NOT_LEADER_OR_FOLLOWER, "c3": 0}

    def answer(_: str, command: Ask) -> Any:
        code = codes[command.to and command.to.host]
        if code is None:
            raise BrokerUnavailable("c1 does not answer")
        return AddRaftVoterResponse(error_code=code, error_message=None)

    controllers = [Address(host, 9093) for host in ("c1", "c2", "c3", "c4")]
    _, sent = run(quorum.add_voter(3, ID, [LISTENER], controllers), answer)
    assert sent == ["AddRaftVoter", "AddRaftVoter c1", "AddRaftVoter c2", "AddRaftVoter c3"]
    with pytest.raises(RequestRefused, match="the controller that was asked does not lead the quorum"):
        run(quorum.add_voter(3, ID, [LISTENER], controllers[:2]), answer)


def test_voters_are_added_and_removed_by_their_directories() -> None:
    asked: list[Any] = []
    codes = [0, 0, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION]

    def answer(name: str, command: Ask) -> Any:
        asked.append(command.request)
        kind = AddRaftVoterResponse if name == "AddRaftVoter" else RemoveRaftVoterResponse
        return kind(error_code=codes.pop(0), error_message="The quorum is static.")

    run(quorum.add_voter(3, ID, [LISTENER]), answer)
    run(quorum.remove_voter(3, ID), answer)
    added, removed = asked
    assert (added.voter_id, added.voter_directory_id, added.ack_when_committed) == (3, ID, True)
    assert [(each.name, each.host, each.port) for each in added.listeners] == [("CONTROLLER", "c3", 9093)]
    assert (removed.voter_id, removed.voter_directory_id) == (3, ID)
    with pytest.raises(RequestRefused, match="controller 3 was not made a voter: The quorum is static"):
        run(quorum.add_voter(3, ID, [LISTENER]), answer)
    with pytest.raises(RequestRefused, match="controller 3 keeps its vote: The quorum is static"):
        run(quorum.remove_voter(3, ID), answer)
