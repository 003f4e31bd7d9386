"""Every API of Kafka's newest release is served, in all of its versions and with all of its fields, or stands here.

The message definitions are read from the jar of kafka-clients.
"""

import json
import re
import zipfile
from functools import cache
from typing import Any, Final

import pytest
from tests.support.genuine import KAFKA_VERSION, kafka_libs

from ottla.protocol import primitives
from ottla.protocol.api import ApiKey, request_class, response_class
from ottla.protocol.schema import Array, Message, Struct, fields_of
from ottla.server.routing import ROUTES

QUORUM: Final = "a request of KRaft's quorum, which Ottla does not have"
ABSENT: Final = {
    "DescribeQuorum": QUORUM,
    "AddRaftVoter": QUORUM,
    "RemoveRaftVoter": QUORUM,
}
UNSTABLE: Final = {"InitProducerId": 6}
"""Newest versions that Kafka does not advertise yet."""


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """The definitions of requests and responses, by name."""
    found: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(kafka_libs() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        for name in jar.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    assert found
    return found


def versions(text: str, newest: int = 32_767) -> range:
    if text == "none":
        return range(0)
    low, dash, high = text.replace("+", f"-{newest}").partition("-")
    return range(int(low), int(high if dash else low) + 1)


def served_by_kafka() -> dict[str, dict[str, Any]]:
    """Requests that a broker of Kafka answers to anybody."""
    return {
        name.removesuffix("Request"): definition
        for name, definition in definitions().items()
        if name.endswith("Request") and "broker" in definition.get("listeners", ())
    }


def test_every_api_is_served_or_absent_for_a_reason() -> None:
    ours = {int(route.api_key) for route in ROUTES.values()}
    absent = {name for name, definition in served_by_kafka().items() if definition["apiKey"] not in ours}
    assert absent == set(ABSENT)


def test_versions_are_kafkas() -> None:
    different = {}
    for name, definition in served_by_kafka().items():
        if name in ABSENT:
            continue
        route = ROUTES[ApiKey(definition["apiKey"])]
        theirs = versions(definition["validVersions"])
        newest = theirs[-1] - 1 if definition.get("latestVersionUnstable") else theirs[-1]
        assert (newest + 1 == UNSTABLE.get(name)) == bool(definition.get("latestVersionUnstable"))
        if (route.min_version, route.max_version) != (theirs[0], newest):
            different[name] = (route.min_version, route.max_version, theirs[0], newest)
    assert different == {}


def present(fields: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    return [field for field in fields if version in versions(field["versions"])]


def compare(cls: type[Struct], fields: list[dict[str, Any]], shared: dict[str, Any], version: int, where: str) -> None:
    theirs = present(fields, version)
    ours = [field for field in fields_of(cls) if field.in_version(version)]
    assert [field.name.replace("_", "") for field in ours] == [field["name"].lower() for field in theirs], where
    for field, twin in zip(ours, theirs, strict=True):
        here = f"{where}.{twin['name']}"
        tagged = twin.get("tag") if version in versions(twin.get("taggedVersions", "none")) else None
        assert field.tag == tagged, here
        kind, name = field.type, twin["type"]
        assert isinstance(kind, Array) == name.startswith("[]"), here
        if isinstance(kind, Array):
            kind, name = kind.element, name[2:]
        if isinstance(kind, type):
            compare(kind, twin.get("fields") or shared[name], shared, version, here)
        else:
            assert isinstance(kind, primitives.Primitive)
            assert kind.name.replace("_", "") == name, here


@pytest.mark.parametrize("api_key", sorted(ROUTES), ids=lambda api_key: api_key.name)
def test_fields_are_kafkas(api_key: ApiKey) -> None:
    for cls in (request_class(api_key), response_class(api_key)):
        definition = definitions()[cls.__name__]
        shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
        flexible = versions(definition["flexibleVersions"])
        for version in versions(definition["validVersions"]):
            assert (version >= cls.FLEXIBLE_SINCE) == (version in flexible)
            assert issubclass(cls, Message)
            compare(cls, definition["fields"], shared, version, f"{cls.__name__} v{version}")
