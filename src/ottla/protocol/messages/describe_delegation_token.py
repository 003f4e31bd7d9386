"""DescribeDelegationToken: the tokens of some owners, or of all (KIP-48).

2  flexible
3  the requester of the token (KIP-373)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), flexible=2)
class DescribeDelegationTokenRequest(Message):
    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribeDelegationTokenOwner(Struct):
    principal_type: str
    principal_name: str


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse(Message):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = 0


@struct
class DescribedDelegationToken(Struct):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = since(3, default="")
    token_requester_principal_name: str = since(3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


@struct
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str
    principal_name: str
