"""What members of streams groups are refused, and the statuses that they get beside their tasks. PURE."""

from typing import Final

from ottla.errors import ApiError, ErrorCode
from ottla.groups.streams.configured import ConfiguredTopology, Status, StatusCode
from ottla.groups.streams.members import StreamsMember
from ottla.groups.streams.tasks import TaskSets
from ottla.groups.streams.topology import Topology
from ottla.ids import GroupId, MemberId

DELAYED_AT_FIRST: Final = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
DELAYED_BY_INTERVAL: Final = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
)


def not_a_streams_group(group_id: GroupId, *, exists: bool, prefix: str = "Group") -> ApiError:
    """The refusal for a group of another kind, or for one that does not exist."""
    why = f"Group {group_id} is not a streams group." if exists else f"{prefix} {group_id} not found."
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, why)


def unknown_member(group_id: GroupId, member_id: MemberId) -> ApiError:
    """The refusal for a member that the group does not have."""
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def refuse_epoch(member: StreamsMember, epoch: int, owned: TaskSets | None) -> None:
    """Raises `ApiError` FENCED_MEMBER_EPOCH, unless the epoch is the member's; or the one before, if the answer with
    the new one may be lost: then it has nothing but what it was assigned."""
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch < member.epoch and owned is not None and owned.is_within(member.assigned):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def refuse_unknown_tasks(configured: ConfiguredTopology, owned: TaskSets | None) -> None:
    """Raises `ApiError` INVALID_REQUEST for tasks that the topology does not have."""
    counts = configured.task_counts()
    for tasks in owned or ():
        for subtopology, partitions in tasks.items():
            if subtopology not in counts:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Subtopology {subtopology} does not exist in the topology.")
            for partition in sorted(partitions):
                if not 0 <= partition < counts[subtopology]:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks for this "
                        f"subtopology: {counts[subtopology]}",
                    )


def stale_topology(member: StreamsMember, topology: Topology) -> Status:
    """The status of a member whose topology is older than the group's."""
    return Status(
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}.",
    )


def shutdown(member_id: MemberId) -> Status:
    """The status of all members once one has asked for the end of the application."""
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )
