"""CreateAcls: add access control entries (KIP-140).

1  pattern types (KIP-290)
2  flexible
3  user resources (KIP-373)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2)
class CreateAclsRequest(Message):
    creations: list[AclCreation]


@struct
class AclCreation(Struct):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2)
class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]


@struct
class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
