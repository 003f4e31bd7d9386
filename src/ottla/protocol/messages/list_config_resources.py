"""ListConfigResources: names of the resources that can be configured.

0  client metrics resources only, then called ListClientMetricsResources (KIP-714)
1  any types (KIP-1142)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message):
    resource_types: list[Int8] = since(1, default_factory=list)


@message(ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource]


@struct
class ConfigResource(Struct):
    resource_name: str
    resource_type: Int8 = since(1, default=16, ignorable=True)
