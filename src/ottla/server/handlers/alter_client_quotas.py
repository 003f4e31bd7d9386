"""AlterClientQuotas (v0-v1): set and remove quotas of users, client ids and addresses (KIP-546, KIP-612)."""

import asyncio
import socket
from typing import TYPE_CHECKING

from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.errors import OttlaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    ResponseEntryData,
)
from ottla.quotas.entities import Entity, check_address, checked_entity, checked_value, duplicate, keys_of
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

Named = tuple[tuple[str, str | None], ...]


async def handle(
    metadata: "MetadataView", request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Each entity on its own: all of its changes are made, or none. An entity that is named twice is changed once, and
    answered with an error, as in Kafka."""
    answers: dict[Named, OttlaError | None] = {}
    for entry in request.entries:
        named = tuple({part.entity_type: part.entity_name for part in entry.entity}.items())
        if named in answers:
            answers[named] = duplicate(named)
        else:
            answers[named] = await _alter(metadata, named, entry, validate_only=request.validate_only)
    return AlterClientQuotasResponse(entries=[_answer(named, refused) for named, refused in answers.items()])


def _answer(named: Named, refused: OttlaError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=0 if refused is None else refused.code,
        error_message=None if refused is None else str(refused),
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named],
    )


async def _alter(metadata: "MetadataView", named: Named, entry: EntryData, *, validate_only: bool) -> OttlaError | None:
    try:
        if len({op.key for op in entry.ops}) < len(entry.ops):
            raise duplicate(named)
        entity = checked_entity(named)
        if entity.ip:
            check_address(entity.ip, is_host=await _is_host(entity.ip))
        edits = [edit for op in entry.ops if (edit := _edit(entity, op)) is not None]
    except OttlaError as refused:
        return refused
    (answer,) = await metadata.alter_configs([ConfigChange(*entity.resource, edits)], validate_only=validate_only)
    return answer


def _edit(entity: Entity, op: OpData) -> ConfigEdit | None:
    """None for the removal of what is no quota: a user's passwords are kept at the same place."""
    if not op.remove:
        return ConfigEdit(op.key, ConfigOperation.SET, checked_value(entity, op.key, op.value))
    return ConfigEdit(op.key, ConfigOperation.DELETE, None) if op.key in keys_of(entity) else None


async def _is_host(name: str) -> bool:
    """Whether it is an address, or a name server knows one for it."""
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True
