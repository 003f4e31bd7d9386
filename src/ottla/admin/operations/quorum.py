"""The quorum of controllers of a cluster with KRaft (KIP-595, KIP-836), and changes of its voters (KIP-853). PURE."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation
from ottla.client.addresses import Address
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message

_METADATA_TOPIC: Final = "__cluster_metadata"
_CATCH_UP_MS: Final = 9_000
"""How long the leader waits for a new voter: less than a client waits for the leader."""


class QuorumListener(NamedTuple):
    """A listener of a controller, by its name."""

    name: str
    address: Address

    def __str__(self) -> str:
        """As in Kafka's settings."""
        return f"{self.name}://{self.address}"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that has the metadata log. `lag`: records of it that the node lacks; times in milliseconds.

    `directory_id` is None, the times are None and `listeners` is empty where the leader does not know them, or is older
    than Kafka 3.3 (times) or 3.9.
    """

    node_id: int
    directory_id: UUID | None
    log_end_offset: int
    lag: int
    last_fetch_ms: int | None
    caught_up_ms: int | None
    listeners: tuple[QuorumListener, ...]


@dataclass(frozen=True, slots=True)
class Quorum:
    """The leader's id, the controllers that vote, and the nodes, brokers among them, that only follow the log.

    `remark`: what the leader, if it is Ottla's, waits for, such as the move from ZooKeeper; empty if all is as usual.
    """

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    remark: str = ""


def describe_quorum(controllers: Iterable[Address] = ()) -> Operation[Quorum]:
    """Describe the quorum of a cluster with KRaft, its nodes by id.

    A broker asks the leader itself. Where a controller was asked that does not lead, `controllers` are asked in turn.
    Raises `UnsupportedRequest` for a cluster without a quorum, `RequestRefused`, `ClientError`.
    """
    partition = PartitionData(partition_index=0)
    request = DescribeQuorumRequest(topics=[TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])])
    answer: DescribeQuorumResponse = yield from _ask_leader(request, controllers, _description_code)
    parts = [part for topic in answer.topics for part in topic.partitions]
    code = _description_code(answer)
    if code:
        message = answer.error_message or (parts[0].error_message if parts else None)
        raise RequestRefused(f"the quorum of controllers cannot be described: {_reason(code, message)}", code)
    (found,) = parts
    newest = max((each.log_end_offset for each in found.current_voters), default=0)
    listeners = {
        node.node_id: tuple(QuorumListener(each.name, Address(each.host, each.port)) for each in node.listeners)
        for node in answer.nodes
    }
    return Quorum(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        _replicas(found.current_voters, newest, listeners),
        _replicas(found.observers, newest, listeners),
        answer.error_message or "",
    )


def _description_code(answer: DescribeQuorumResponse) -> int:
    parts = [part for topic in answer.topics for part in topic.partitions]
    return answer.error_code or (parts[0].error_code if parts else ErrorCode.UNKNOWN_SERVER_ERROR)


def _ask_leader(request: Message, controllers: Iterable[Address], code: Callable[[Any], int]) -> Operation[Any]:
    answer = yield Ask(request)
    for controller in controllers:
        if code(answer) != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            break
        try:
            answer = yield Ask(request, controller)
        except BrokerUnavailable:
            continue
    return answer


def _replicas(
    states: Iterable[ReplicaState], newest: int, listeners: Mapping[int, tuple[QuorumListener, ...]]
) -> tuple[QuorumReplica, ...]:
    found = [
        QuorumReplica(
            state.replica_id,
            None if state.replica_directory_id == NULL_UUID else state.replica_directory_id,
            state.log_end_offset,
            max(newest - max(state.log_end_offset, 0), 0),
            None if state.last_fetch_timestamp < 0 else state.last_fetch_timestamp,
            None if state.last_caught_up_timestamp < 0 else state.last_caught_up_timestamp,
            listeners.get(state.replica_id, ()),
        )
        for state in states
    ]
    return tuple(sorted(found, key=lambda replica: (replica.node_id, str(replica.directory_id))))


def add_voter(
    node_id: int, directory_id: UUID, listeners: Iterable[QuorumListener], controllers: Iterable[Address] = ()
) -> Operation[None]:
    """Make a controller that follows the metadata log a voter; `listeners` are those at which other voters reach it.

    `controllers` as in `describe_quorum`. Raises `UnsupportedRequest` for a cluster without a quorum, `RequestRefused`,
    `ClientError`.
    """
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=_CATCH_UP_MS,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[Listener(name=each.name, host=each.address.host, port=each.address.port) for each in listeners],
    )
    answer: AddRaftVoterResponse = yield from _ask_leader(request, controllers, lambda answer: int(answer.error_code))
    _check(answer, f"controller {node_id} was not made a voter")


def remove_voter(node_id: int, directory_id: UUID, controllers: Iterable[Address] = ()) -> Operation[None]:
    """Take the vote of a controller away; it still follows the metadata log. Raises as `add_voter`."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    answer: RemoveRaftVoterResponse = yield from _ask_leader(
        request, controllers, lambda answer: int(answer.error_code)
    )
    _check(answer, f"controller {node_id} keeps its vote")


def _check(answer: AddRaftVoterResponse | RemoveRaftVoterResponse, failure: str) -> None:
    if answer.error_code:
        reason = _reason(answer.error_code, answer.error_message)
        raise RequestRefused(f"{failure}: {reason}", answer.error_code)


def _reason(code: int, message: str | None) -> str:
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return "the controller that was asked does not lead the quorum; name them all, or a broker"
    return refusal(code, message)
