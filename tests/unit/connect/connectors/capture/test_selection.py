"""Which tables and columns, which topics, and which settings are refused."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from ottla.connect.api import ConfigError
from ottla.connect.connectors.capture.selection import CaptureSettings, Selection, digits, variable_decimal
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.source import PostgresSource
from ottla.connect.runtime.connector_config import parsed, unknown_settings
from ottla.connect.schema import STRING


def selection(**settings: str) -> Selection:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Selection(CaptureSettings.model_validate({"topic.prefix": "shop"} | given))


def test_expressions_fit_whole_names_in_any_case() -> None:
    chosen = selection(table_include_list=r"public\.order.*, sales.items")
    assert chosen.has_table("public", "Orders")
    assert chosen.has_table("sales", "items")
    assert not chosen.has_table("public", "reorders")
    assert not selection(table_exclude_list="public.*").has_table("public", "a")
    assert not selection(column_exclude_list=r".*\.secret").has_column("public", "a", "secret")


def test_topics_have_allowed_names() -> None:
    assert selection().topic("public", "naïve table") == "shop.public.na_ve_table"


def test_masks_come_from_settings_whose_names_say_how() -> None:
    config = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "shop"}
    rule = {"column.mask.with.3.chars": r"public\.people\.name"}
    settings = parsed(PostgresSettings, config | rule)
    mask = Selection(settings).mask("public", "people", "name", STRING, None)
    assert mask is not None
    assert mask.change("Ada") == "***"
    assert Selection(settings).mask("public", "people", "id", STRING, None) is None
    assert unknown_settings(PostgresSource, config | rule) == []
    with pytest.raises(ConfigError, match=r"column\.mask\.with\.chars is none of .*no column would be masked"):
        parsed(PostgresSettings, config | {"column.mask.with.chars": "a"})
    with pytest.raises(ConfigError, match=r"schema\.include\.list and schema\.exclude\.list exclude each other"):
        parsed(PostgresSettings, config | {"schema.include.list": "a", "schema.exclude.list": "b"})


def test_keys_by_setting() -> None:
    keys = selection(message_key_columns="public.a:x, y;public.b:z")
    assert keys.key_columns("public", "a") == ["x", "y"]
    assert keys.key_columns("public", "c") is None


def test_refused_settings() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        selection(table_include_list="a", table_exclude_list="b")
    with pytest.raises(ValidationError, match="is no regular expression"):
        selection(table_include_list="(")


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**30, -(10**30)])
def test_digits_are_javas(number: int) -> None:
    written = digits(number)
    assert int.from_bytes(written, "big", signed=True) == number
    shorter = written[1:]
    assert not shorter or int.from_bytes(shorter, "big", signed=True) != number


@pytest.mark.parametrize(
    ("text", "scale", "unscaled"), [("12.345", 3, 12345), ("-0.10", 2, -10), ("1E+3", 0, 1000), ("0", 0, 0)]
)
def test_decimals_of_any_scale(text: str, scale: int, unscaled: int) -> None:
    assert variable_decimal(Decimal(text)) == {"scale": scale, "value": digits(unscaled)}
