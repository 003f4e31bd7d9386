"""Answers that carry nothing but an error."""

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey, response_class
from ottla.protocol.primitives import BYTES, STRING
from ottla.protocol.schema import NEVER, Array, Field, Message, fields_of


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
    if field.type is BYTES:
        return b""
    return "" if field.type is STRING else 0
