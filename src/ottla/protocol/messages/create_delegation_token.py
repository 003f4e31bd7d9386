"""CreateDelegationToken: a token to authenticate with in the place of a user (KIP-48).

2  flexible
3  for another owner than the requester (KIP-373)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest(Message):
    owner_principal_type: str | None = since(3, default="")
    owner_principal_name: str | None = since(3, default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


@struct
class CreatableRenewers(Struct):
    principal_type: str
    principal_name: str


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse(Message):
    error_code: Int16 = 0
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32 = 0
