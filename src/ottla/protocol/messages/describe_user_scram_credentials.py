"""DescribeUserScramCredentials: which SCRAM mechanisms users have, never their secrets (KIP-554)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None


@struct
class UserName(Struct):
    name: str


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult]


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: list[CredentialInfo]


@struct
class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32
