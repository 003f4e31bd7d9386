"""ApiVersions: what the broker can speak, asked by a client before anything else (KIP-35).

The answer to a version the broker does not know is sent as version 0, with UNSUPPORTED_VERSION and the range that it
does know (KIP-511); its header is version 0 always.

    1  throttle time
    3  flexible; name and version of the client's software; features (KIP-511, KIP-584)
    4  a feature range may start at 0
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.API_VERSIONS, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Message):
    client_software_name: str = since(3, default="", ignorable=True)
    client_software_version: str = since(3, default="", ignorable=True)


@message(ApiKey.API_VERSIONS, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0, default_factory=list, ignorable=True)
    finalized_features_epoch: Int64 = since(3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2, default_factory=list, ignorable=True)
    zk_migration_ready: bool = since(3, tag=3, default=False, ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey(Struct):
    name: str
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey(Struct):
    name: str
    max_version_level: Int16
    min_version_level: Int16
