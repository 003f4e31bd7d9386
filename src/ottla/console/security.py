"""Users, access rules and quotas, as far as the cluster shows them to this console's user. Nothing here is a secret:
brokers give no passwords away."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException

from ottla.admin import EntityQuotas, QuotaUse, UnsupportedRequest
from ottla.client.errors import ClientError
from ottla.console.cluster import TIMEOUT_S, ClusterView

_KEPT_S: Final = 10.0


class User(NamedTuple):
    """A user with a password for SCRAM."""

    name: str
    mechanism: str
    iterations: int


class Rule(NamedTuple):
    """An access rule, in the words of Kafka's tools."""

    principal: str
    permission: str
    operation: str
    resource: str
    pattern: str
    host: str


class Quota(NamedTuple):
    """One quota of one entity, per second on each broker; `used` by the broker that uses most of it, None: unknown."""

    entity: str
    name: str
    limit: float
    used: float | None
    throttled_ms: int


class Answer(NamedTuple):
    """Rows, or the sentence of the refusal."""

    rows: list[Any]
    refusal: str = ""


async def users(view: ClusterView) -> Answer:
    """The users that log in by SCRAM; those of PLAIN, tokens and certificates are known to brokers alone."""

    async def ask() -> list[User]:
        described: Any = view.library.describe_user_scram_credentials(request_timeout=TIMEOUT_S)
        found: dict[str, Any] = await view.wait(described)
        return [
            User(name, info.mechanism.name.replace("_", "-"), info.iterations)
            for name, each in sorted(found.items())
            for info in each.scram_credential_infos
        ]

    return await _answer(view, "users", ask)


async def rules(view: ClusterView) -> Answer:
    """The access rules, by principal."""

    async def ask() -> list[Rule]:
        found = await view.dear(lambda admin: admin.list_acls())
        return sorted(
            Rule(
                rule.principal,
                rule.permission.name.lower(),
                rule.operation.name.lower(),
                f"{resource.type.name.lower()} {resource.name}",
                resource.pattern.name.lower(),
                rule.host,
            )
            for resource, rule in found
        )

    return await _answer(view, "rules", ask)


async def quotas(view: ClusterView) -> Answer:
    """The quotas, each with what is used of it where brokers report it, as Ottla's do."""

    async def ask() -> list[Quota]:
        listed = await view.dear(lambda admin: admin.list_quotas())
        try:
            used = list(await view.dear(lambda admin: admin.list_quota_use()))
        except ClientError:
            used = []
        return quota_rows(listed, used)

    return await _answer(view, "quotas", ask)


def quota_rows(listed: list[EntityQuotas], used: list[QuotaUse]) -> list[Quota]:
    """One row a quota, with the largest use of it. PURE."""
    most: dict[tuple[str, str], QuotaUse] = {}
    for each in used:
        key = str(each.entity), each.quota
        if key not in most or most[key].used_per_s < each.used_per_s:
            most[key] = each
    rows = []
    for entity in listed:
        for name, limit in sorted(entity.quotas.items()):
            use = most.get((str(entity.entity), name))
            rows.append(
                Quota(
                    str(entity.entity),
                    name,
                    limit,
                    None if use is None else use.used_per_s,
                    0 if use is None else use.throttled_ms,
                )
            )
    return rows


def matching(answer: Answer, text: str) -> Answer:
    """The rows that have a text in them, in any case. PURE."""
    wanted = text.lower()
    return answer._replace(rows=[row for row in answer.rows if any(wanted in str(cell).lower() for cell in row)])


async def _answer(view: ClusterView, key: str, ask: Callable[[], Awaitable[list[Any]]]) -> Answer:
    try:
        return Answer(await view.shared.get(("access", key), ask, _KEPT_S))
    except UnsupportedRequest:
        return Answer([], "These brokers do not serve the request.")
    except (ClientError, KafkaException) as refused:
        reason = refused.args[0] if isinstance(refused, KafkaException) else refused
        return Answer([], f"The cluster refuses: {getattr(reason, 'str', lambda: str(reason))()}.")
