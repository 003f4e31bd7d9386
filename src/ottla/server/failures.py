"""Answers that carry nothing but an error."""

from typing import Any

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


def _element(struct: type[Struct], name: str) -> type[Struct]:
    (kind,) = (field.type for field in fields_of(struct) if field.name == name)
    assert isinstance(kind, Array)
    assert isinstance(kind.element, type)
    return kind.element
