"""DescribeClientQuotas (v0-v1): the quotas of users, client ids and addresses that a filter means (KIP-546)."""

import logging
from typing import TYPE_CHECKING

from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.quotas.entities import checked_filter, entity_of, values_of
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.metadata.view import MetadataView
    from ottla.quotas.entities import Filter
    from ottla.slices import Slices, Steps

log = logging.getLogger(__name__)


async def handle(
    metadata: "MetadataView", slices: "Slices", request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Quotas that cannot be read are left out."""
    wanted = checked_filter(
        [(component.entity_type, component.match_type, component.match) for component in request.components],
        strict=request.strict,
    )
    return DescribeClientQuotasResponse(error_message="", entries=await slices.run(_entries(metadata.image, wanted)))


def _entries(image: "MetadataImage", wanted: "Filter") -> "Steps[list[EntryData]]":
    entries = []
    for (kind, name), settings in image.configs.items():
        entity = entity_of(kind, name)
        if entity is None or not wanted.means(parts := entity.parts()):
            continue
        yield
        try:
            values = values_of(entity, settings)
        except ValueError as problem:
            log.warning("a quota is not described: %s", problem)
            continue
        if values:
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    return entries
