"""The refusal of a change of quotas."""

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    ResponseEntryData,
)
from ottla.server.access.whole import MESSAGES

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def refused_quotas(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """The answer without ALTER_CONFIGS on the cluster."""
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=REFUSED,
                error_message=MESSAGES[REFUSED],
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
