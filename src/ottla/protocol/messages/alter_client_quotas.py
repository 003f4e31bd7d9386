"""AlterClientQuotas: set and remove quotas of users, clients and addresses (KIP-546).

1  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Float64, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    entries: list[EntryData]
    validate_only: bool


@struct
class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


@struct
class EntityData(Struct):
    entity_type: str
    entity_name: str | None


@struct
class OpData(Struct):
    key: str
    value: Float64
    remove: bool


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData]


@struct
class ResponseEntryData(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    entity: list[EntityData]
