"""DescribeGroups: state, protocol and members of classic groups.

1  throttle time
3  authorized operations on request (KIP-430)
4  static members (KIP-345)
5  flexible
6  GROUP_ID_NOT_FOUND, with a message (KIP-1043)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Message):
    groups: list[str]
    include_authorized_operations: bool = since(3, default=False)


@message(ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: list[DescribedGroup]


@struct
class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = since(6, default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = since(3, default=-0x8000_0000)


@struct
class DescribedGroupMember(Struct):
    member_id: str
    group_instance_id: str | None = since(4, default=None, ignorable=True)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
