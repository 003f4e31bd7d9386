"""What requests change, for the audit log: read from a request before its handler, and from the answer after it.

What comes of an answer is computed by the audit log's thread, since an answer can be about thousands of topics.
Refusals by the authorizer are events of their own, so that they are left out here. Nothing that may be secret is read:
of settings only the names, and the values of topics' settings; of credentials and tokens neither.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from ottla.cluster.scram_credentials import SCRAM_CODES
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.errors import ErrorCode
from ottla.metadata.view import MetadataView
from ottla.protocol.api import ApiKey
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType
from ottla.server.audit.audit_log import Change

OfAnswer = Callable[[Any], Iterator[Change]]
"""The changes that an answer reports."""
Watch = Callable[[Any, MetadataView], OfAnswer | None]
"""Looks at a request before its handler; None for one that changes nothing."""

_REFUSALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))
_CONFIG_KINDS: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_TOPIC: Final = 2
MOST_SHOWN: Final = 100
"""Settings or partitions that a line names."""


def _change(kind: str, name: str, code: int, **detail: str | int) -> Iterator[Change]:
    if code in _REFUSALS:
        return
    yield Change(kind, name, None if code == ErrorCode.NONE else _error(code), tuple(detail.items()))


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _create_topics(request: Any, metadata: MetadataView) -> OfAnswer | None:
    if request.validate_only:
        return None

    def of_answer(answer: Any) -> Iterator[Change]:
        for topic in answer.topics:
            sizes = {"partitions": topic.num_partitions, "replication_factor": topic.replication_factor}
            yield from _change("TOPIC", topic.name, topic.error_code, **({} if topic.error_code else sizes))

    return of_answer


def _created_by_use(request: Any, metadata: MetadataView) -> OfAnswer | None:
    """Topics that a request for metadata creates."""
    topics = metadata.image.topics
    asked = request.topics or ()
    missing = {topic.name for topic in asked if topic.name is not None and topic.name not in topics}
    if not missing or not request.allow_auto_topic_creation:
        return None

    def of_answer(answer: Any) -> Iterator[Change]:
        image = metadata.image
        for name in missing & {topic.name for topic in request.topics}:  # without those that a guard has taken out
            created = image.topics.get(name)
            if created is not None:
                yield from _change("TOPIC", name, ErrorCode.NONE, partitions=len(created.partitions))

    return of_answer


def _delete_topics(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        for topic in answer.responses:
            yield from _change("TOPIC", topic.name or str(topic.topic_id), topic.error_code)

    return of_answer


def _create_partitions(request: Any, metadata: MetadataView) -> OfAnswer | None:
    if request.validate_only:
        return None
    counts = {topic.name: topic.count for topic in request.topics}

    def of_answer(answer: Any) -> Iterator[Change]:
        for topic in answer.results:
            yield from _change("TOPIC", topic.name, topic.error_code, partitions=counts.get(topic.name, -1))

    return of_answer


def _delete_records(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        for topic in answer.topics:
            for code in sorted({partition.error_code for partition in topic.partitions}):
                places = [
                    f"{partition.partition_index}@{partition.low_watermark}"
                    for partition in topic.partitions
                    if partition.error_code == code
                ]
                yield from _change("TOPIC", topic.name, code, records_before=_some(places))

    return of_answer


def _some(words: Iterable[str]) -> str:
    taken = list(words)
    more = [f"and {len(taken) - MOST_SHOWN} more"] if len(taken) > MOST_SHOWN else []
    return ",".join(taken[:MOST_SHOWN] + more)


def _name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def _rule(kind: int, name: str, pattern: int, asked: Any) -> str:
    try:
        binding = AclBinding(
            ResourcePattern(ResourceType(kind), name, PatternType(pattern)),
            AccessRule(asked.principal, asked.host, Operation(asked.operation), PermissionType(asked.permission_type)),
        )
    except ValueError:
        return "not a rule"
    return str(binding)


def _create_acls(request: Any, metadata: MetadataView) -> OfAnswer | None:
    asked = list(request.creations)

    def of_answer(answer: Any) -> Iterator[Change]:
        for creation, result in zip(asked, answer.results, strict=False):
            kind, name, pattern = creation.resource_type, creation.resource_name, creation.resource_pattern_type
            rule = _rule(kind, name, pattern, creation)
            yield from _change(_name(ResourceType, kind), name, result.error_code, rule=rule)

    return of_answer


def _delete_acls(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        for result in answer.filter_results:
            if result.error_code:
                yield from _change("CLUSTER", "", result.error_code)
            for removed in result.matching_acls:
                kind, name = removed.resource_type, removed.resource_name
                rule = _rule(kind, name, removed.pattern_type, removed)
                yield from _change(_name(ResourceType, kind), name, removed.error_code, rule=rule)

    return of_answer


def _alter_configs(request: Any, metadata: MetadataView) -> OfAnswer | None:
    if request.validate_only:
        return None
    asked = list(request.resources)

    def of_answer(answer: Any) -> Iterator[Change]:
        resources = {(resource.resource_type, resource.resource_name): resource for resource in asked}
        for result in answer.responses:
            kind = _CONFIG_KINDS.get(result.resource_type, str(result.resource_type))
            resource = resources.get((result.resource_type, result.resource_name))
            settings = "" if resource is None else _settings(resource)
            yield from _change(kind, result.resource_name, result.error_code, settings=settings)

    return of_answer


_VERBS: Final = {0: "={}", 1: " deleted", 2: "+={}", 3: "-={}"}


def _settings(resource: Any) -> str:
    """The settings that are to change; values of topics' settings alone, since those of brokers can be secrets."""

    def shown(config: Any) -> str:
        verb = _VERBS.get(getattr(config, "config_operation", 0), "")
        is_open = resource.resource_type == _TOPIC and config.name in TOPIC_SETTINGS and config.value is not None
        return f"{config.name}{verb.format(config.value) if is_open or '{}' not in verb else ''}"

    return _some(map(shown, resource.configs))


def _alter_credentials(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        asked: dict[str, list[str]] = {}
        for verb, changes in (("set", request.upsertions), ("deleted", request.deletions)):
            for change in changes:
                mechanism = SCRAM_CODES.get(change.mechanism, str(change.mechanism))
                asked.setdefault(change.name, []).append(f"{mechanism} {verb}")
        for result in answer.results:
            yield from _change("USER", result.user, result.error_code, credentials=_some(asked.get(result.user, ())))

    return of_answer


def _alter_quotas(request: Any, metadata: MetadataView) -> OfAnswer | None:
    if request.validate_only:
        return None
    asked = list(request.entries)

    def of_answer(answer: Any) -> Iterator[Change]:
        for entry, wanted in zip(answer.entries, asked, strict=False):
            quotas = _some(f"{op.key} deleted" if op.remove else f"{op.key}={op.value:g}" for op in wanted.ops)
            entity = ", ".join(
                f"{each.entity_type} {'<default>' if each.entity_name is None else each.entity_name}"
                for each in entry.entity
            )
            yield from _change("QUOTA", entity, entry.error_code, quotas=quotas)

    return of_answer


def _delete_groups(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        for group in answer.results:
            yield from _change("GROUP", group.group_id, group.error_code)

    return of_answer


def _of_one_group(request: Any, metadata: MetadataView) -> OfAnswer | None:
    """Offsets of a group that are deleted or set."""
    group, asked = request.group_id, list(request.topics)

    def of_answer(answer: Any) -> Iterator[Change]:
        topics = _some(str(getattr(topic, "name", None) or getattr(topic, "topic_name", "")) for topic in asked)
        yield from _change("GROUP", group, answer.error_code, topics=topics)

    return of_answer


def _reassign(request: Any, metadata: MetadataView) -> OfAnswer | None:
    asked = list(request.topics)

    def of_answer(answer: Any) -> Iterator[Change]:
        moves = {topic.name: _moves(topic) for topic in asked}
        if answer.error_code:
            for name, partitions in moves.items():
                yield from _change("TOPIC", name, answer.error_code, replicas=partitions)
        for topic in answer.responses:
            code = next((partition.error_code for partition in topic.partitions if partition.error_code), 0)
            yield from _change("TOPIC", topic.name, code, replicas=moves.get(topic.name, ""))

    return of_answer


def _moves(topic: Any) -> str:
    return _some(
        f"{partition.partition_index} to {'where it was' if partition.replicas is None else partition.replicas}"
        for partition in topic.partitions
    )


def _create_token(request: Any, metadata: MetadataView) -> OfAnswer | None:
    def of_answer(answer: Any) -> Iterator[Change]:
        owner = f"{answer.principal_type}:{answer.principal_name}"
        yield from _change("DELEGATION_TOKEN", answer.token_id, answer.error_code, owner=owner)

    return of_answer


def _change_token(request: Any, metadata: MetadataView) -> OfAnswer | None:
    """Renewed or expired: the request names the token by its secret, which is left out."""

    def of_answer(answer: Any) -> Iterator[Change]:
        yield from _change("DELEGATION_TOKEN", "", answer.error_code, expires_ms=answer.expiry_timestamp_ms)

    return of_answer


def _update_features(request: Any, metadata: MetadataView) -> OfAnswer | None:
    if request.validate_only:
        return None
    levels = _some(f"{update.feature}={update.max_version_level}" for update in request.feature_updates)

    def of_answer(answer: Any) -> Iterator[Change]:
        yield from _change("CLUSTER", "kafka-cluster", answer.error_code, features=levels)

    return of_answer


def _unregister(request: Any, metadata: MetadataView) -> OfAnswer | None:
    broker = str(request.broker_id)

    def of_answer(answer: Any) -> Iterator[Change]:
        yield from _change("BROKER", broker, answer.error_code)

    return of_answer


WATCHES: Final[Mapping[ApiKey, Watch]] = {
    ApiKey.METADATA: _created_by_use,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_credentials,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _of_one_group,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _of_one_group,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _of_one_group,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _change_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _change_token,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister,
}
"""The requests that change something which outlives them, records and offsets of consumers aside."""
