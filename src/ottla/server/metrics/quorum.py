"""What a scrape gathers of a node's controller: the quorum as the node sees it and, where it is active, the cluster."""

from typing import TYPE_CHECKING, Final

from ottla.metrics.health import Health
from ottla.server.metrics import catalog
from ottla.server.metrics.gathering import gather_cluster
from ottla.server.metrics.health import Phase

if TYPE_CHECKING:
    from ottla.metrics.families import Measurements
    from ottla.server.controller_server import ControllerServer
    from ottla.slices import Steps

_UNKNOWN: Final = -1


def gather_quorum(server: "ControllerServer", to: "Measurements") -> "Steps[None]":
    """The quorum, and the cluster's brokers and partitions."""
    node, status = server.node, server.node.status()
    leader, epoch = node.leader
    to.add(catalog.RAFT_STATE, 1, status.role)
    to.add(catalog.RAFT_LEADER, _UNKNOWN if leader is None else leader)
    to.add(catalog.RAFT_EPOCH, epoch)
    to.add(catalog.RAFT_HIGH_WATERMARK, _UNKNOWN if node.high_watermark is None else node.high_watermark)
    to.add(catalog.RAFT_END, status.log_end_offset)
    to.add(catalog.RAFT_VOTERS, status.voters)
    for voter, lag in status.lags.items():
        to.add(catalog.VOTER_LAG, lag, str(voter))
    to.add(catalog.LAST_APPLIED, server.replay.offset)
    is_active = server.controller.is_active
    brokers = server.replay.state.brokers.values() if is_active else ()
    to.add(catalog.FENCED_BROKERS, sum(each.fenced for each in brokers))
    to.add(catalog.ACTIVE_BROKERS, sum(not each.fenced for each in brokers))
    yield from gather_cluster(server.replay.image, to, is_controller=is_active)


def look_at_controller(phase: Phase, server: "ControllerServer") -> Health:
    """The health of a controller that is no broker."""
    if phase is not Phase.CONTROLLING:
        return Health([phase.value], [])
    reasons: list[str] = []
    if server.node.leader.leader_id is None:
        reasons.append(
            "the quorum of controllers has no leader: see whether most of the controllers run and reach each other"
        )
    is_active = server.controller.is_active
    fenced = [each.broker_id for each in server.replay.state.brokers.values() if each.fenced and is_active]
    if not fenced:
        return Health(reasons, [])
    numbers = ", ".join(map(str, sorted(fenced)))
    return Health(reasons, [f"brokers {numbers} are registered and not alive: start them"])
