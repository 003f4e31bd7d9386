"""DescribeConfigs: settings of topics, brokers, loggers, groups (KIP-133).

1  synonyms, and where a value comes from (KIP-226)
3  types and documentation (KIP-569)
4  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = since(3, default=False)


@struct
class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


@message(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4)
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


@struct
class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


@struct
class DescribeConfigsResourceResult(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: str | None = since(3, default="", ignorable=True)


@struct
class DescribeConfigsSynonym(Struct):
    name: str
    value: str | None
    source: Int8
