"""Quotas: list and change them (KIP-546), and what is used of them now. PURE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation, brokers
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.messages.describe_quota_usage import DescribeQuotaUsageRequest, DescribeQuotaUsageResponse

ANY: Final = ""
"""As a name: all that have no quota of their own."""
_TYPES: Final = ("user", "client-id", "ip")


@dataclass(frozen=True, slots=True, order=True)
class QuotaEntity:
    """Whose a quota is: a user, a client id, both, or an address. None: not named; `ANY`: the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        """As a phrase, for messages."""
        named = zip(("user", "client id", "address"), (self.user, self.client_id, self.ip), strict=True)
        return ", ".join(f"{kind} {name!r}" if name else f"any {kind}" for kind, name in named if name is not None)


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of an entity, each per second on each broker, by Kafka's names such as `producer_byte_rate`."""

    entity: QuotaEntity
    quotas: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What an entity uses of one quota on one broker, per second; `throttled_ms`: how long its next request waits."""

    broker: int
    entity: QuotaEntity
    quota: str
    limit_per_s: float
    used_per_s: float
    throttled_ms: int


def list_quotas() -> Operation[list[EntityQuotas]]:
    """List the quotas of all entities, sorted. Raises `ClientError`."""
    answer: DescribeClientQuotasResponse = yield Ask(DescribeClientQuotasRequest(components=[], strict=False))
    if answer.error_code:
        reason = refusal(answer.error_code, answer.error_message)
        raise RequestRefused(f"quotas cannot be listed: {reason}", answer.error_code)
    found = []
    for entry in answer.entries or ():
        names = {part.entity_type: part.entity_name or ANY for part in entry.entity}
        quotas = {value.key: value.value for value in entry.values}
        found.append(EntityQuotas(QuotaEntity(*(names.get(kind) for kind in _TYPES)), quotas))
    return sorted(found, key=lambda each: [name or "" for name in _named(each.entity)])


def _named(entity: QuotaEntity) -> tuple[str | None, ...]:
    return entity.user, entity.client_id, entity.ip


def alter_quotas(
    entity: QuotaEntity, quotas: Mapping[str, float | None], *, validate_only: bool = False
) -> Operation[None]:
    """Set quotas of an entity, all or none; None removes one. Raises `RequestRefused`, `ClientError`."""
    named = zip(_TYPES, _named(entity), strict=True)
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name or None) for kind, name in named if name is not None],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas.items()
        ],
    )
    answer: AlterClientQuotasResponse = yield Ask(
        AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    )
    (result,) = answer.entries
    if result.error_code:
        reason = refusal(result.error_code, result.error_message)
        raise RequestRefused(f"quotas of {entity} are not changed: {reason}", result.error_code)


def list_quota_use(most: int = 100) -> Operation[Sequence[QuotaUse]]:
    """List what is used of quotas now, by at most so many entities of each broker, the largest part first.

    Ottla's brokers only. Raises `UnsupportedRequest` by other brokers, `RequestRefused`, `ClientError`.
    """
    found: list[QuotaUse] = []
    for broker, address in (yield from brokers()).items():
        answer: DescribeQuotaUsageResponse = yield Ask(DescribeQuotaUsageRequest(most=most), address)
        if answer.error_code:
            reason = refusal(answer.error_code)
            raise RequestRefused(f"{address} does not show the use of quotas: {reason}", answer.error_code)
        found += (
            QuotaUse(
                broker,
                QuotaEntity(each.user, each.client_id),
                each.quota,
                each.limit_per_s,
                each.used_per_s,
                each.throttled_ms,
            )
            for each in answer.users
        )
    return sorted(found, key=lambda each: each.used_per_s / each.limit_per_s, reverse=True)
