"""DescribeGroupHistory (v0, Ottla's own): why groups have rebalanced, and what moved."""

from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.groups import history
from ottla.ids import GroupId
from ottla.protocol.messages.describe_group_history import (
    DescribeGroupHistoryRequest,
    DescribeGroupHistoryResponse,
    GroupHistory,
    Move,
    Rebalance,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.slices import Slices


async def handle(
    groups: "GroupCoordinator", slices: "Slices", request: DescribeGroupHistoryRequest, context: RequestContext
) -> DescribeGroupHistoryResponse:
    """Each group on its own; a group of any kind has a history, and loses it when its coordinator changes."""
    return DescribeGroupHistoryResponse(
        groups=await slices.each(partial(_describe, groups, context=context), map(GroupId, request.group_ids))
    )


async def _describe(groups: "GroupCoordinator", group_id: GroupId, context: RequestContext) -> GroupHistory:
    try:
        found = await groups.describe_history(group_id)
    except OttlaError as error:
        return GroupHistory(error_code=error.code, error_message=str(error), group_id=group_id, rebalances=[])
    if found.error:
        message = f"Group {group_id} not found." if found.error is ErrorCode.GROUP_ID_NOT_FOUND else None
        return GroupHistory(error_code=found.error, error_message=message, group_id=group_id, rebalances=[])
    return GroupHistory(group_id=group_id, rebalances=[_rebalance(rebalance) for rebalance in found.rebalances])


def _rebalance(rebalance: history.Rebalance) -> Rebalance:
    return Rebalance(
        timestamp_ms=rebalance.at_ms,
        epoch=rebalance.epoch,
        protocol=rebalance.protocol,
        assignor=rebalance.assignor,
        reasons=list(rebalance.reasons),
        member_count=rebalance.members,
        moved_partitions=rebalance.moved_partitions,
        moves=[
            Move(
                topic=move.topic,
                partitions=list(move.partitions),
                source_member_id=move.source,
                target_member_id=move.target,
            )
            for move in rebalance.moves
        ],
    )
