"""DescribeCluster (v0-v2) at a controller: the controllers of the quorum, at the listener that was asked (KIP-919)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.server.context import RequestContext
from ottla.server.handlers.describe_cluster import BROKERS, CONTROLLERS
from ottla.server.handlers.metadata import ALL_CLUSTER_OPERATIONS

if TYPE_CHECKING:
    from ottla.metadata.quorum.node import QuorumNode
    from ottla.metadata.quorum_replay import QuorumReplay

NOBODY = -1


def handle(
    replay: "QuorumReplay", quorum: "QuorumNode", request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Registered controllers, or the voters as long as the log has no metadata; the one that is named as controller
    leads the quorum."""
    if request.endpoint_type != CONTROLLERS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == BROKERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
    leader = replay.leader.leader_id
    known = {
        controller.controller_id: (listener.host, listener.port)
        for controller in replay.state.controllers.values()
        for listener in controller.listeners
        if listener.name == context.listener
    }
    if not replay.state.metadata_version:  # it waits for the metadata of ZooKeeper, perhaps for days
        known = dict(quorum.voter_addresses(context.listener))
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=replay.image.cluster_id,
        controller_id=NOBODY if leader is None else leader,
        brokers=[
            DescribeClusterBroker(broker_id=controller_id, host=host, port=port, rack=None)
            for controller_id, (host, port) in known.items()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response
