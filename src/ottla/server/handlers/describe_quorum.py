"""DescribeQuorum (v0-v2): leader, voters and observers of the metadata quorum (KIP-595, KIP-836, KIP-853)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: DescribeQuorumResponse = await quorum.handle(request, context.api_version)
    if quorum.remark and quorum.leader.leader_id == quorum.node_id and context.api_version >= 2:
        response.error_message = quorum.remark  # Kafka's tools show it with an error only
    return response
