"""AlterUserScramCredentials (v0): set and remove SCRAM credentials (KIP-554). Passwords arrive salted."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.cluster.image import ResourceType
from ottla.cluster.scram_credentials import SCRAM_CODES, credential_text
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security.sasl import FEWEST_ITERATIONS, MOST_ITERATIONS, credential
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


async def handle(
    metadata: "MetadataView", slices: "Slices", request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Each user on its own: all of a user's changes are made, or none. One answer for each user."""
    asked: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
    for deletion in request.deletions:
        asked.setdefault(deletion.name, []).append(deletion)
    for upsertion in request.upsertions:
        asked.setdefault(upsertion.name, []).append(upsertion)
    results = []
    for user, changes in asked.items():
        await slices.pause()
        result = AlterUserScramCredentialsResult(user=user)
        refused = await _alter(metadata, user, changes)
        if refused is not None:
            result.error_code, result.error_message = refused.code, str(refused)
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(
    metadata: "MetadataView", user: str, changes: Sequence[ScramCredentialDeletion | ScramCredentialUpsertion]
) -> OttlaError | None:
    try:
        edits = [_edit(metadata, user, change) for change in changes]
        if max(Counter(edit.name for edit in edits).values()) > 1:
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
    except OttlaError as refused:
        return refused
    (answer,) = await metadata.alter_configs([ConfigChange(ResourceType.USER, user, edits, replace=False)])
    return answer


def _edit(
    metadata: "MetadataView", user: str, change: ScramCredentialDeletion | ScramCredentialUpsertion
) -> ConfigEdit:
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_CODES.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if mechanism not in metadata.image.config(ResourceType.USER, user):
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return ConfigEdit(mechanism, ConfigOperation.DELETE, None)
    if change.iterations < FEWEST_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MOST_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    made = credential(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
    return ConfigEdit(mechanism, ConfigOperation.SET, credential_text(made))
