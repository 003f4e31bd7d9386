"""ApiVersions (v0-v4): what this broker serves, printed from the routing table, and the feature levels (KIP-584).

A request of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the same list (KIP-511), so that
any client can find a version in common.

GetTelemetrySubscriptions and PushTelemetry are listed only while a `client-metrics` subscription exists. Kafka lists
them only with a plug-in that takes metrics. Clients that see them ask every five minutes, and librdkafka logs it.
Both are answered at any time, as in Kafka.
"""

import re
from typing import TYPE_CHECKING, Final

from ottla.cluster.features import METADATA_VERSION, ONLY_LEVELS, SUPPORTED
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.server.context import RequestContext
from ottla.server.routing import CLUSTER_ROUTES, OWN_ROUTES, QUORUM_ROUTES, ROUTES, Route

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.cluster_member import ClusterMember
    from ottla.server.telemetry import Telemetry

OWN_SOFTWARE: Final = "ottla"
"""The software name of clients that are also shown the APIs that Kafka does not have."""
TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
SOFTWARE_SINCE: Final = 3
FEATURES_FROM_0_SINCE: Final = 4
"""Earlier clients cannot read a range that starts at 0 (KAFKA-17011)."""
SOFTWARE_PATTERN: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    metadata: "MetadataView",
    telemetry: "Telemetry",
    cluster: "ClusterMember | None",
    request: ApiVersionsRequest,
    context: RequestContext,
) -> ApiVersionsResponse:
    """The routing table; a client that names itself badly is refused, as in Kafka."""
    if context.api_version >= SOFTWARE_SINCE and not (
        SOFTWARE_PATTERN.fullmatch(request.client_software_name)
        and SOFTWARE_PATTERN.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if context.api_version >= SOFTWARE_SINCE:
        telemetry.note_software(context.connection_id, request.client_software_name, request.client_software_version)
    answer = supported(ErrorCode.NONE, telemetry=telemetry.wanted)
    if cluster is not None:
        more = QUORUM_ROUTES if METADATA_VERSION in metadata.image.features else CLUSTER_ROUTES
        answer.api_keys += [_entry(route) for route in more.values()]
    if request.client_software_name == OWN_SOFTWARE:
        answer.api_keys += [_entry(route) for route in OWN_ROUTES.values()]
    image = metadata.image
    lowest = 0 if context.api_version >= FEATURES_FROM_0_SINCE else 1
    ranges = {name: (0, highest) for name, highest in SUPPORTED.items()}
    if METADATA_VERSION in image.features:  # of a quorum of controllers
        from ottla.cluster.metadata_log.levels import RANGES

        ranges = dict(RANGES)
    answer.supported_features = [
        SupportedFeatureKey(name=name, min_version=max(least, lowest), max_version=highest)
        for name, (least, highest) in ranges.items()
    ]
    levels = dict(image.features)
    if cluster is not None and cluster.kraft_version:
        levels["kraft.version"] = cluster.kraft_version
    answer.finalized_features_epoch = metadata.features_epoch
    answer.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
    ]
    if cluster is None:
        for name, level in ONLY_LEVELS.items():
            answer.supported_features.append(SupportedFeatureKey(name=name, min_version=level, max_version=level))
            answer.finalized_features.append(
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            )
    return answer


def supported(error: ErrorCode, *, telemetry: bool = False) -> ApiVersionsResponse:
    """The answer for `error`, which is NONE or UNSUPPORTED_VERSION, with or without the requests of KIP-714."""
    routes = [route for key, route in ROUTES.items() if telemetry or key not in TELEMETRY]
    return ApiVersionsResponse(error_code=error, api_keys=[_entry(route) for route in routes])


def _entry(route: Route) -> ApiVersion:
    return ApiVersion(
        api_key=route.api_key,
        # librdkafka takes what it may compress with from the advertised minimum, which must therefore stay 0
        # (KAFKA-18659); genuine Kafka 4 does the same and refuses those versions when used.
        min_version=0 if route.api_key is ApiKey.PRODUCE else route.min_version,
        max_version=route.max_version,
    )
