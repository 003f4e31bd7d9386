"""DescribeQuotaUsage (v0, Ottla's own): how much clients use of their quotas on this broker."""

from heapq import nlargest
from typing import TYPE_CHECKING, Final

from ottla.protocol.messages.describe_quota_usage import (
    DescribeQuotaUsageRequest,
    DescribeQuotaUsageResponse,
    QuotaUser,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.client_quotas import ClientQuotas
    from ottla.slices import Slices

MOST: Final = 1_000


async def handle(
    quotas: "ClientQuotas", slices: "Slices", request: DescribeQuotaUsageRequest, context: RequestContext
) -> DescribeQuotaUsageResponse:
    """Users of quotas that have used something lately, those with the largest part of theirs first."""
    used = await slices.run(quotas.usage())
    first = nlargest(max(min(request.most, MOST), 0), used, key=lambda each: each.used_per_s / each.limit_per_s)
    return DescribeQuotaUsageResponse(
        users=[
            QuotaUser(
                user=each.entity.user,
                client_id=each.entity.client_id,
                quota=each.kind,
                limit_per_s=each.limit_per_s,
                used_per_s=each.used_per_s,
                throttled_ms=each.throttled_ms,
            )
            for each in first
        ]
    )
