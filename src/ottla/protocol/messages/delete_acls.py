"""DeleteAcls: remove the access control entries that match filters (KIP-140).

1  pattern types (KIP-290)
2  flexible
3  user resources (KIP-373)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2)
class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@message(ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2)
class DeleteAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]


@struct
class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl]


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8
