"""ApiVersions (v0-v4) of a controller: what it serves, the levels that it supports, and the finalized ones."""

from typing import TYPE_CHECKING

from ottla.cluster.metadata_log.levels import KRAFT_VERSION, RANGES
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.server.context import RequestContext
from ottla.server.controller_routing import CONTROLLER_ROUTES
from ottla.server.handlers.api_versions import FEATURES_FROM_0_SINCE, SOFTWARE_PATTERN, SOFTWARE_SINCE

if TYPE_CHECKING:
    from ottla.metadata.quorum.node import QuorumNode
    from ottla.metadata.quorum_replay import QuorumReplay


def handle(
    replay: "QuorumReplay", quorum: "QuorumNode", request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """The routing table of controllers; a client that names itself badly is refused, as in Kafka."""
    if context.api_version >= SOFTWARE_SINCE and not (
        SOFTWARE_PATTERN.fullmatch(request.client_software_name)
        and SOFTWARE_PATTERN.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    answer = supported(ErrorCode.NONE)
    has_zero = context.api_version >= FEATURES_FROM_0_SINCE
    answer.supported_features = [
        SupportedFeatureKey(name=name, min_version=low if has_zero else max(low, 1), max_version=high)
        for name, (low, high) in RANGES.items()
    ]
    levels = dict(replay.image.features)
    if quorum.kraft_version:
        levels[KRAFT_VERSION] = quorum.kraft_version
    answer.finalized_features_epoch = replay.offset
    answer.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
    ]
    return answer


def supported(error: ErrorCode) -> ApiVersionsResponse:
    """The answer for `error`, which is NONE or UNSUPPORTED_VERSION."""
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(api_key=route.api_key, min_version=route.min_version, max_version=route.max_version)
            for route in CONTROLLER_ROUTES.values()
        ],
    )
