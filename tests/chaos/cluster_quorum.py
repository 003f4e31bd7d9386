"""What a quorum of controllers says of itself, and how its voters are changed: asked at any node that answers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.schema import Message
from tests.chaos.cluster_nodes import Place
from tests.support.genuine import CLUSTER_ID
from tests.support.raw_client import ClosedError, RawConnection

ANSWER_S: Final = 2.0
CHANGE_S: Final = 30.0
"""Within which a healthy quorum has to take a change of its voters."""
METADATA: Final = "__cluster_metadata"


class Quorum:
    """The quorum of some nodes."""

    def __init__(self, places: Mapping[int, Place]) -> None:
        self._places = places

    def leader(self, asked: Sequence[int]) -> int | None:
        """The active controller, as the first of the nodes that answers says; None if none does."""
        found = self._described(asked)
        return None if found is None or found.leader_id not in self._places else found.leader_id

    def high_watermark(self, asked: Sequence[int]) -> int | None:
        """The offset below which the metadata log is committed."""
        found = self._described(asked)
        return None if found is None else found.high_watermark

    def remove(self, number: int, asked: Sequence[int]) -> str | None:
        """Remove a node from the voters; returns what went wrong."""
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=number, voter_directory_id=self._places[number].directory_uuid
        )
        return self._changed(request, 0, asked, done=(ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND))

    def add(self, number: int, asked: Sequence[int]) -> str | None:
        """Have it vote again; returns what went wrong."""
        place = self._places[number]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=int(CHANGE_S * 1000),
            voter_id=number,
            voter_directory_id=place.directory_uuid,
            listeners=[Listener(name="CONTROLLER", host=place.address, port=place.controller_port)],
        )
        return self._changed(request, 0, asked, done=(ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER))

    def _changed(self, request: Message, version: int, asked: Sequence[int], done: Sequence[ErrorCode]) -> str | None:
        """Ask until it is done: what was asked before may be done by the time it is asked again."""
        deadline, problem = time.monotonic() + CHANGE_S, "no node answers"
        while time.monotonic() < deadline:
            for answer in self._answers(request, version, asked, CHANGE_S):
                if answer.error_code in done:
                    return None
                problem = f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    break
            time.sleep(0.2)
        return problem

    def _described(self, asked: Sequence[int]) -> Any:
        request = DescribeQuorumRequest(
            topics=[TopicData(topic_name=METADATA, partitions=[PartitionData(partition_index=0)])]
        )
        for answer in self._answers(request, 1, asked, ANSWER_S):
            if not answer.error_code and answer.topics and not answer.topics[0].partitions[0].error_code:
                return answer.topics[0].partitions[0]
        return None

    def _answers(self, request: Message, version: int, asked: Sequence[int], timeout_s: float) -> Iterator[Any]:
        """The answers of those that have one, in turn.

        A genuine broker asks the node that led when it last looked, which then answers that it does not lead.
        """
        for number in asked:
            place = self._places[number]
            try:
                with RawConnection(f"{place.address}:{place.port}", timeout_s=timeout_s) as connection:
                    answer = connection.ask(request, version)
            except (OSError, ClosedError):
                continue
            yield answer
