"""From a connector's model: definitions, defaults, errors."""

import ast
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.api import CommaList, SecretStr, Settings, Sink, Source, setting
from ottla.connect.errors import ConfigError
from ottla.connect.permissions import Permissions
from ottla.connect.rest.validation import all_definitions, definitions
from ottla.connect.runtime.connector_config import parsed, unknown_settings, validated
from ottla.connect.runtime.plugins import connector_class, kind_of, version_of
from ottla.connect.runtime.worker_settings import client_settings, unknown_worker_settings, worker_settings


class LampSettings(Settings):
    topic: str = setting("Where to.", importance="high")
    watts: int = setting("How bright.", 40, ge=1, group="Light")
    rooms: CommaList = setting("Which.", ["hall", "attic"])
    key: SecretStr = setting("Of the door.", SecretStr("none"))
    manual: Path | None = setting("Read it.", None, name="the.manual")


class Lamp(Source[LampSettings]):
    """Light."""


class BrightLamp(Lamp):
    """More of it."""

    version = "2"


class Dark(Sink[Settings]):
    """None."""


def test_the_model_is_found_through_bases() -> None:
    assert BrightLamp.settings_model is LampSettings
    assert Dark.settings_model is Settings
    assert (kind_of(BrightLamp), kind_of(Dark)) == ("source", "sink")
    assert (version_of(BrightLamp), version_of(Lamp)) == ("2", "undefined")


def test_definitions_come_from_the_model() -> None:
    by_name = {each["name"]: each for each in definitions(LampSettings)}
    assert list(by_name) == ["topic", "watts", "rooms", "key", "the.manual"]
    assert by_name["topic"]["required"]
    assert by_name["topic"]["importance"] == "HIGH"
    assert (by_name["watts"]["type"], by_name["watts"]["default_value"]) == ("LONG", "40")
    assert (by_name["rooms"]["type"], by_name["rooms"]["default_value"]) == ("LIST", "hall,attic")
    assert (by_name["key"]["type"], by_name["the.manual"]["type"]) == ("PASSWORD", "STRING")
    assert by_name["watts"]["group"] == "Light"
    names = [each["name"] for each in all_definitions(Lamp)]
    assert names[:3] == ["name", "connector.class", "tasks.max"]
    assert len(names) == len(set(names))


def test_definitions_parse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listing(Settings):
        tables: CommaList = setting("Names.", default_factory=lambda: ["a", "b"])
        others: CommaList = setting("Names.", default_factory=list)

    parsed_texts: list[object] = []
    parse: Any = ast.parse

    def noted(source: object, *given: Any, **named: Any) -> Any:
        parsed_texts.append(source)
        return parse(source, *given, **named)

    monkeypatch.setattr(ast, "parse", noted)
    assert [each["default_value"] for each in definitions(Listing)] == ["a,b", ""]
    assert parsed_texts == []  # Python before 3.11.8 cannot parse in several threads, and requests come at once


def test_errors_name_settings_and_hide_passwords() -> None:
    _, problems = validated(LampSettings, {"watts": "0", "key": "sesame"})
    assert problems["topic"] == ['Missing required configuration "topic" which has no default value.']
    (sentence,) = problems["watts"]
    assert sentence.startswith("Invalid value 0 for configuration watts: ")
    with pytest.raises(ConfigError, match=r"topic: Missing.*; watts: Invalid"):
        parsed(LampSettings, {"watts": "0"})


def test_unknown_settings_are_named_with_the_nearest() -> None:
    config = {"name": "x", "connector.class": "y", "topik": "t", "transforms.a.type": "b", "value.converter.x": "c"}
    assert unknown_settings(Lamp, config) == ["the setting topik is unknown, and left alone; did you mean topic?"]


def test_classes_are_found_by_name() -> None:
    assert (
        connector_class("tests.connect.connectors.Numbers", Permissions({"plugin.modules": "tests.connect"})).__name__
        == "Numbers"
    )
    assert connector_class("file-source") is connector_class("FileSource")
    with pytest.raises(ConfigError, match=r"matches file-sorce; did you mean 'file-source'"):
        connector_class("file-sorce")
    with pytest.raises(ConfigError, match=r"connector\.class is missing"):
        connector_class(None)


def test_settings_of_clients_have_prefixes() -> None:
    settings = {
        "bootstrap.servers": "b:1",
        "sasl.username": "me",
        "producer.linger.ms": "7",
        "consumer.fetch.min.bytes": "9",
        "producer.key.serializer": "Java",
    }
    producer = {name: value for name, value in client_settings(settings, "producer").items() if name != "logger"}
    assert producer.pop("reconnect.backoff.ms") == 20
    assert producer == {"bootstrap.servers": "b:1", "sasl.username": "me", "linger.ms": "7"}
    assert client_settings({"admin.reconnect.backoff.ms": "100"}, "admin")["reconnect.backoff.ms"] == "100"
    with pytest.raises(ConfigError, match=r"offset\.storage\.partitions"):
        worker_settings({"offset.storage.partitions": "0"})
    assert not worker_settings({"offset.storage.file.filename": "x"}).exactly_once


def test_no_other_machine_reaches_a_worker_unless_a_setting_lets_it() -> None:
    assert worker_settings({}).listeners == "http://127.0.0.1:8083"


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_what_is_required_is_not_blank_unless_it_is_a_password(blank: str) -> None:
    class Door(Settings):
        topic: str = setting("Where to.")
        rooms: CommaList = setting("Which.")
        file: Path = setting("Read it.")
        key: SecretStr = setting("It may be empty.")
        note: str = setting("Whatever.", "none")

    _, problems = validated(Door, dict.fromkeys(("topic", "rooms", "file", "key", "note"), blank))
    assert problems == {
        name: [f"Invalid value {blank} for configuration {name}: String must be non-empty"]
        for name in ("topic", "rooms", "file")
    }


def test_settings_of_a_worker_that_nobody_looks_at_are_named() -> None:
    known = {"producer.acks": "1", "plugin.path": "/", "group.id": "g", "value.converter.schemas.enable": "false"}
    assert unknown_worker_settings({**known, "listners": "http://:1", "colour": "red"}) == [
        "the worker's setting listners is unknown, and left alone; did you mean listeners?",
        "the worker's setting colour is unknown, and left alone",
    ]


def test_a_class_of_nobody_is_looked_for_where() -> None:
    with pytest.raises(ConfigError, match=r"no module lines with it in plugin\.path, on PYTHONPATH, or installed"):
        connector_class("lines.Liness", Permissions({"plugin.modules": "lines"}))
    with pytest.raises(ConfigError, match=r"this worker may not import lines: set plugin\.path in its configuration"):
        connector_class("lines.Liness")
