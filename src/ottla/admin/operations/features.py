"""The feature levels of the cluster (KIP-584). PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import NotFound, RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation, ask_controller
from ottla.client.sansio.handshake import api_versions_request
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Feature:
    """The finalized level of a feature, 0 if it is off, and the levels that the broker supports."""

    level: int
    lowest: int
    highest: int


def describe_features() -> Operation[dict[str, Feature]]:
    """Describe the features that a broker supports, by name. Raises `ClientError`."""
    answer: ApiVersionsResponse = yield Ask(api_versions_request())
    if answer.error_code:
        raise RequestRefused(
            f"the broker does not say what its features are: {refusal(answer.error_code)}", answer.error_code
        )
    finalized = {key.name: key.max_version_level for key in answer.finalized_features}
    supported = sorted(answer.supported_features, key=lambda key: str(key.name))
    return {key.name: Feature(finalized.get(key.name, 0), key.min_version, key.max_version) for key in supported}


def update_features(levels: Mapping[str, int], *, dry_run: bool = False) -> Operation[None]:
    """Finalize features at these levels, all or none; 0 turns one off. With `dry_run`, the levels are only checked.

    A level is lowered only where that loses nothing. Raises `NotFound` for a feature that no broker supports,
    `ClientError`.
    """
    current = yield from describe_features()
    updates = []
    for name, level in levels.items():
        if name not in current:
            raise NotFound(f"there is no feature {name!r}")
        kind = _SAFE_DOWNGRADE if level < current[name].level else _UPGRADE
        updates.append(FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind))
    request = UpdateFeaturesRequest(timeout_ms=_TIMEOUT_MS, feature_updates=updates, validate_only=dry_run)
    answer: UpdateFeaturesResponse = yield from ask_controller(request)
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"no level was changed: {reason}", answer.error_code)
