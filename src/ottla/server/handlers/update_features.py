"""UpdateFeatures (v0-v2): raise and lower the feature levels of the cluster, all those of a request or none (KIP-584).

Version 0 has a flag to allow downgrades instead of a type, which Kafka 4 takes no notice of: it can only raise levels.
"""

from typing import TYPE_CHECKING, Final

from ottla.cluster.features import FeatureUpdate, UpgradeType
from ottla.errors import OttlaError
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

UPGRADE_TYPE_SINCE: Final = 1


async def handle(
    metadata: "MetadataView", request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    has_type = context.api_version >= UPGRADE_TYPE_SINCE
    updates = [
        FeatureUpdate(
            update.feature, update.max_version_level, update.upgrade_type if has_type else UpgradeType.UPGRADE
        )
        for update in request.feature_updates
    ]
    try:
        await metadata.update_features(updates, validate_only=request.validate_only)
    except OttlaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=update.feature) for update in updates])
