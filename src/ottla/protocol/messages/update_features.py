"""UpdateFeatures: raise and lower the finalized feature levels of the cluster (KIP-584).

1  validate only; how a level may fall
2  one result for the whole request
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Message):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = since(1, default=False)


@struct
class FeatureUpdateKey(Struct):
    feature: str
    max_version_level: Int16
    allow_downgrade: bool = since(until=0, default=False)
    upgrade_type: Int8 = since(1, default=1)


@message(ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = since(until=1, default_factory=list, ignorable=True)


@struct
class UpdatableFeatureResult(Struct):
    feature: str
    error_code: Int16 = 0
    error_message: str | None = None
