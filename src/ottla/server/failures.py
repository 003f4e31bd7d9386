"""Answers that carry nothing but an error."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey, response_class
from ottla.protocol.primitives import BYTES, RECORDS, STRING
from ottla.protocol.schema import NEVER, Array, Field, Message, Struct, fields_of


def failure_response(api_key: ApiKey, version: int, code: ErrorCode, message: str) -> Message | None:
    """A response that carries nothing but the error; None for an API whose response has no error of its own."""

    response = response_class(api_key)
    fields = fields_of(response)
    if not any(field.name == "error_code" and field.in_version(version) for field in fields):
        return None
    values = {field.name: _nothing(field) for field in fields}
    values["error_code"] = code
    if "error_message" in values:
        values["error_message"] = message
    return response(**values)


def _nothing(field: Field) -> Any:
    if field.has_default:
        return field.make_default()
    if field.nullable_since != NEVER:
        return None
    if isinstance(field.type, Array):
        return []
    if field.type is STRING:
        return ""
    return b"" if field.type in (BYTES, RECORDS) else 0


def failed_share_state(request: Any, code: ErrorCode, message: str) -> Message:
    """The answer to a request about the state of share groups, with the same error for each of its partitions."""
    response: Any = response_class(request.API_KEY)
    result: Any = _element(response, "results")
    partition: Any = _element(result, "partitions")
    answer: Message = response(
        results=[
            result(
                topic_id=topic.topic_id,
                partitions=[
                    partition(
                        **{field.name: _nothing(field) for field in fields_of(partition)}
                        | {"partition": asked.partition, "error_code": code, "error_message": message}
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return answer


Named = Mapping[str, Any]
"""The fields by which a result names what was asked for; lists of further ones for what is below it."""

_RESULTS: Final[Mapping[ApiKey, tuple[str, Callable[[Any], Iterable[Named]]]]] = {
    ApiKey.CREATE_TOPICS: ("topics", lambda request: [{"name": topic.name} for topic in request.topics]),
    ApiKey.DELETE_TOPICS: (
        "responses",
        lambda request: [
            *({"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics),
            *({"name": name} for name in request.topic_names),
        ],
    ),
    ApiKey.CREATE_PARTITIONS: ("results", lambda request: [{"name": topic.name} for topic in request.topics]),
    ApiKey.CREATE_ACLS: ("results", lambda request: [{} for _ in request.creations]),
    ApiKey.DELETE_ACLS: ("filter_results", lambda request: [{} for _ in request.filters]),
    ApiKey.ALTER_CONFIGS: ("responses", lambda request: map(_resource, request.resources)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", lambda request: map(_resource, request.resources)),
    ApiKey.ELECT_LEADERS: (
        "replica_election_results",
        lambda request: [
            {"topic": topic.topic, "partition_result": [{"partition_id": number} for number in topic.partitions]}
            for topic in request.topic_partitions or ()
        ],
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        "responses",
        lambda request: [
            {
                "name": topic.name,
                "partitions": [{"partition_index": partition.partition_index} for partition in topic.partitions],
            }
            for topic in request.topics
        ],
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        "entries",
        lambda request: [
            {"entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity]}
            for entry in request.entries
        ],
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        "results",
        lambda request: [
            {"user": user} for user in dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
        ],
    ),
}
"""The results in the answers of APIs that answer for each thing on its own, and how they name them."""


def _resource(resource: Any) -> Named:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}


def failed_items(request: Any, version: int, code: ErrorCode, message: str) -> Message | None:
    """The answer with the same error for each thing that a request would change, as genuine Kafka gives it; None for an
    API whose answer is one result."""
    results = _RESULTS.get(request.API_KEY)
    if results is None:
        return None
    name, named = results
    answer = _failed(response_class(request.API_KEY), {name: named(request)}, version, code, message)
    assert isinstance(answer, Message)
    return answer


def _failed(struct: type[Struct], named: Named, version: int, code: ErrorCode, message: str) -> Struct:
    values: dict[str, Any] = {}
    for field in fields_of(struct):
        if field.name == "error_code" and field.in_version(version):
            values[field.name] = code
        elif field.name == "error_message" and field.in_version(version):
            values[field.name] = message
        elif field.name not in named:
            values[field.name] = _nothing(field)
        elif isinstance(field.type, Array):
            element = _element(struct, field.name)
            values[field.name] = [_failed(element, each, version, code, message) for each in named[field.name]]
        else:
            values[field.name] = named[field.name]
    return struct(**values)


def _element(struct: type[Struct], name: str) -> type[Struct]:
    (kind,) = (field.type for field in fields_of(struct) if field.name == name)
    assert isinstance(kind, Array)
    assert isinstance(kind.element, type)
    return kind.element
