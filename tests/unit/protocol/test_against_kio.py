"""Our declarations and bytes against those of kio, an independent implementation generated from Kafka's definitions."""

from __future__ import annotations

import dataclasses
import datetime
import io
import pkgutil
import re
import types
import typing
from importlib import import_module
from typing import Any

import kio.schema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from tests.unit.protocol.message_values import all_messages, narrowed, values_of

from ottla.protocol import compiled, primitives
from ottla.protocol.schema import Array, Field, Message, Struct, Type, fields_of

NOT_IN_KIO = {
    # Last in Kafka 3.9, kio has what Kafka 4 has.
    "ControlledShutdownRequest": {0, 1, 2, 3},
    "ControlledShutdownResponse": {0, 1, 2, 3},
    "LeaderAndIsrRequest": set(range(8)),
    "LeaderAndIsrResponse": set(range(8)),
    "StopReplicaRequest": set(range(5)),
    "StopReplicaResponse": set(range(5)),
    "UpdateMetadataRequest": set(range(9)),
    "UpdateMetadataResponse": set(range(9)),
    "RequestHeader": {0},
}
OWN_API_KEYS = range(20_000, 30_000)
"""Ottla's own APIs, which kio cannot know."""


# What kio declares and Ottla does not: an enumeration.
NOT_IN_OTTLA = {
    "control_record_type_schema",
}

few = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


def kio_package(cls: type[Message]) -> str:
    name = re.sub(r"(?<!Header)(?<=[a-z])(Request|Response)$", "", cls.__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kio_versions(package: str) -> set[int]:
    try:
        module = import_module(f"kio.schema.{package}")
    except ModuleNotFoundError:
        return set()
    return {int(found.name[1:]) for found in pkgutil.iter_modules(module.__path__)}


def kio_class(cls: type[Message], version: int) -> Any:
    package = f"kio.schema.{kio_package(cls)}.v{version}"
    for module in pkgutil.iter_modules(import_module(package).__path__):
        found = getattr(import_module(f"{package}.{module.name}"), cls.__name__, None)
        if found is not None:
            return found
    raise AssertionError(f"{package} has no {cls.__name__}")


def not_in_kio(cls: type[Message]) -> set[int]:
    if cls.API_KEY is not None and cls.API_KEY in OWN_API_KEYS:
        return set(cls.VERSIONS)
    return NOT_IN_KIO.get(cls.__name__, set())


def in_kio(cls: type[Message]) -> list[int]:
    return [version for version in cls.VERSIONS if version not in not_in_kio(cls)]


MESSAGES = [cls for cls in all_messages() if in_kio(cls)]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_versions_are_those_of_kio(cls: type[Message]) -> None:
    ours, theirs = set(cls.VERSIONS), kio_versions(kio_package(cls))
    assert ours - theirs == not_in_kio(cls)
    assert not theirs - ours


def test_every_message_of_kio_is_declared_or_left_out_on_purpose() -> None:
    packages = {found.name for found in pkgutil.iter_modules(kio.schema.__path__) if found.ispkg}
    assert packages - {kio_package(cls) for cls in all_messages()} == NOT_IN_OTTLA


# -- declarations ----------------------------------------------------------------------------------------------------

KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


def present(cls: type[Struct], version: int) -> list[Field]:
    return [field for field in fields_of(cls) if field.in_version(version)]


def without_null(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        assert len(options) == 1
        return options[0], True
    return hint, False


def assert_same_structure(cls: type[Struct], other: Any, version: int) -> None:
    ours, theirs = present(cls, version), dataclasses.fields(other)
    assert len(ours) == len(theirs)
    hints = typing.get_type_hints(other)
    for field, twin in zip(ours, theirs, strict=True):
        where = f"{cls.__name__}.{field.name}, version {version}"
        assert field.name.replace("_", "").removesuffix("ms") == twin.name.replace("_", "").removesuffix("ms"), where
        assert field.tag == twin.metadata.get("tag"), where
        hint, nullable = without_null(hints[twin.name])
        kind: Type = field.type
        if isinstance(kind, Array):
            assert typing.get_origin(hint) is tuple, where
            kind, hint = kind.element, typing.get_args(hint)[0]
        if isinstance(kind, type):
            assert kind.__name__.removeprefix("Response") == hint.__name__, where
            assert_same_structure(kind, hint, version)
        else:
            twin_kind = twin.metadata["kafka_type"]
            assert isinstance(kind, primitives.Primitive)
            assert kind.name == KINDS.get(twin_kind, twin_kind), where
        # kio says null for the zero UUID and the time -1.
        if twin.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):
            assert field.nullable_in(version) == nullable, where


@every_message
def test_declarations_are_those_of_kio(cls: type[Message]) -> None:
    for version in in_kio(cls):
        twin = kio_class(cls, version)
        assert_same_structure(cls, twin, version)
        assert (version >= cls.FLEXIBLE_SINCE) == twin.__flexible__
        if cls.API_KEY is not None:
            assert twin.__api_key__ == cls.API_KEY
            expected = 2 if version >= cls.FLEXIBLE_SINCE else 1
            if cls.__name__.endswith("Response"):
                expected = 0 if cls.API_KEY == 18 else expected - 1
            assert twin.__header_schema__.__version__ == expected


# -- bytes -----------------------------------------------------------------------------------------------------------

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
CODES = {code.value for code in ErrorCode}


def counterparts(value: Struct, other: Any, version: int) -> tuple[Struct, Any]:
    """`value` and kio's equal of it, the value first changed to something that kio can hold."""
    hints = typing.get_type_hints(other)
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for field in fields_of(type(value)):
        ours[field.name] = getattr(value, field.name)
    for field, twin in zip(present(type(value), version), dataclasses.fields(other), strict=True):
        hint, nullable = without_null(hints[twin.name])
        content = ours[field.name]
        element, null_element = without_null(typing.get_args(hint)[0] if isinstance(field.type, Array) else hint)
        kind = twin.metadata.get("kafka_type", "")
        if isinstance(content, list):
            pairs = [counterpart(item, element, kind, nullable or null_element, version) for item in content]
            ours[field.name] = [pair[0] for pair in pairs]
            theirs[twin.name] = tuple(pair[1] for pair in pairs)
        elif content is None:
            theirs[twin.name] = tag_default(twin) if field.optional else None
        else:
            ours[field.name], theirs[twin.name] = counterpart(content, element, kind, nullable, version)
            if field.optional and theirs[twin.name] == tag_default(twin):
                ours[field.name] = None  # kio, like Kafka, sends no tag for a structure full of defaults
    return type(value)(**ours), other(**theirs)


def tag_default(twin: dataclasses.Field[Any]) -> Any:
    """The value of a tagged structure that is not sent."""
    return get_tagged_field_default(twin) if twin.default is dataclasses.MISSING else twin.default


def counterpart(value: Any, other: Any, kind: str, nullable: bool, version: int) -> tuple[Any, Any]:
    if isinstance(value, Struct):
        return counterparts(value, other, version)
    if kind == "error_code":
        value = value if value in CODES else 0
        return value, ErrorCode(value)
    if kind.startswith("timedelta"):
        value = max(-(2**40), min(2**40, value))  # kio computes with floats
        return value, datetime.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        if value == -1 and nullable:
            return value, None
        value = abs(value) % 2**42
        return value, EPOCH + datetime.timedelta(milliseconds=value)
    if kind == "uuid":
        return value, None if nullable and value == primitives.NULL_UUID else value
    return value, value


@every_message
@few
@given(data=st.data())
def test_bytes_are_those_of_kio(cls: type[Message], data: st.DataObject) -> None:
    full = data.draw(values_of(cls))
    for version in in_kio(cls):
        other = kio_class(cls, version)
        message, twin = counterparts(narrowed(full, version), other, version)
        assert isinstance(message, Message)
        written = io.BytesIO()
        entity_writer(other)(written, twin)
        encoded = b"".join(compiled.encode(message, version))  # type: ignore[arg-type]  # no opaque pieces here
        assert encoded == written.getvalue(), version
        assert entity_reader(other)(encoded, 0) == (twin, len(encoded))
        assert compiled.decode(cls, written.getvalue(), version) == message
