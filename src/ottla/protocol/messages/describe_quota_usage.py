"""DescribeQuotaUsage: how much clients use of their quotas on one broker now. Ottla's own, not Kafka's.

ApiVersions names it only to clients that call themselves `ottla`: see `ottla.server.handlers.api_versions`.
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Float64, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_QUOTA_USAGE, versions=(0, 0), flexible=0)
class DescribeQuotaUsageRequest(Message):
    """At most so many users of quotas, those that use the largest part of theirs first."""

    most: Int32


@message(ApiKey.DESCRIBE_QUOTA_USAGE, versions=(0, 0), flexible=0)
class DescribeQuotaUsageResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    users: list[QuotaUser]


@struct
class QuotaUser(Struct):
    """A user, a client id or a client id of a user, with what it may use and uses each second."""

    user: str | None = None
    client_id: str | None = None
    quota: str
    limit_per_s: Float64
    used_per_s: Float64
    throttled_ms: Int32
    """How long its next request would be throttled."""
