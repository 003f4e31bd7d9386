"""DescribeClientQuotas: quotas of users, clients and addresses that match a filter (KIP-546).

1  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Float64, Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData]
    strict: bool


@struct
class ComponentData(Struct):
    entity_type: str
    match_type: Int8
    match: str | None


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    entries: list[EntryData] | None


@struct
class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


@struct
class EntityData(Struct):
    entity_type: str
    entity_name: str | None


@struct
class ValueData(Struct):
    key: str
    value: Float64
