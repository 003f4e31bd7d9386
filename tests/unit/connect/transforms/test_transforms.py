"""Transforms by Kafka's names and settings, on records with and without schemas."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.errors import BadRecord, ConfigError
from ottla.connect.permissions import Permissions
from ottla.connect.records import Header, SinkRecord, SourceRecord, TopicPartition
from ottla.connect.schema import INT32, INT64, STRING, Schema, Type, struct, timestamp
from ottla.connect.transforms.base import steps
from ottla.connect.transforms.catalog import predicate_names, transform_names

ORDER = struct("Order", id=INT32, note=STRING.as_optional(), at=timestamp(), to=struct("To", city=STRING))
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)
VALUE = {"id": 7, "note": "n", "at": AT, "to": {"city": "Oslo"}}

ALL = Permissions({"plugin.modules": "*"})


def sink_record(value: Any, schema: Schema | None = None, **attributes: Any) -> SinkRecord:
    return SinkRecord(
        topic="t",
        value=value,
        value_schema=schema,
        origin=TopicPartition("t", 2),
        partition=2,
        offset=9,
        **{"timestamp": 1_767_323_045_678, **attributes},
    )


def through(record: Any, **settings: str) -> Any:
    """The record after one transform named x; underscores for dots, `type` without Kafka's package."""
    options = {f"transforms.x.{name.replace('_', '.')}": text for name, text in settings.items()}
    options["transforms.x.type"] = f"org.apache.kafka.connect.transforms.{settings['type']}"
    (step,) = steps({"transforms": "x", **options}, ALL)
    return step(record)


def names(schema: Schema | None) -> list[str]:
    assert schema is not None
    return [each.name for each in schema.fields]


def test_insert_field() -> None:
    settings = {
        "type": "InsertField$Value",
        "topic_field": "topic!",
        "offset_field": "offset",
        "timestamp_field": "time",
        "static_field": "src",
        "static_value": "a",
    }
    changed = through(sink_record(VALUE, ORDER), **settings)
    assert changed.value == {**VALUE, "topic": "t", "offset": 9, "time": AT, "src": "a"}
    by_name = changed.value_schema.by_name
    assert not by_name["topic"].schema.optional
    assert by_name["offset"].schema == INT64.as_optional()
    bare = through(sink_record({"id": 1}), **settings)
    assert bare.value == {"id": 1, "topic": "t", "offset": 9, "time": 1_767_323_045_678, "src": "a"}
    assert through(sink_record(None, ORDER), **settings).value is None


def test_replace_field() -> None:
    changed = through(sink_record(VALUE, ORDER), type="ReplaceField$Value", exclude="at,to", renames="id:number")
    assert changed.value == {"number": 7, "note": "n"}
    assert names(changed.value_schema) == ["number", "note"]
    assert through(sink_record(VALUE), type="ReplaceField$Value", include="id").value == {"id": 7}


def test_keys_from_values() -> None:
    keyed = through(sink_record(VALUE, ORDER), type="ValueToKey", fields="id")
    assert keyed.key == {"id": 7}
    assert names(keyed.key_schema) == ["id"]
    assert through(keyed, type="ExtractField$Key", field="id").key == 7
    assert through(keyed, type="ExtractField$Key", field="id").key_schema == INT32
    with pytest.raises(BadRecord, match="Field does not exist: nix"):
        through(sink_record(VALUE, ORDER), type="ValueToKey", fields="nix")


def test_flatten_and_hoist() -> None:
    flat = through(sink_record(VALUE, ORDER), type="Flatten$Value", delimiter="_")
    assert flat.value == {"id": 7, "note": "n", "at": AT, "to_city": "Oslo"}
    assert names(flat.value_schema) == ["id", "note", "at", "to_city"]
    assert through(sink_record({"a": {"b": {"c": 1}}}), type="Flatten$Value").value == {"a.b.c": 1}
    hoisted = through(sink_record(7, INT32), type="HoistField$Value", field="n")
    assert (hoisted.value, names(hoisted.value_schema)) == ({"n": 7}, ["n"])


def test_mask_field() -> None:
    assert through(sink_record(VALUE, ORDER), type="MaskField$Value", fields="id,note").value["id"] == 0
    assert through(sink_record(VALUE, ORDER), type="MaskField$Value", fields="note").value["note"] == ""
    masked = through(sink_record({"card": "1234", "n": 5}), type="MaskField$Value", fields="card,n", replacement="42")
    assert masked.value == {"card": "42", "n": 42}


def test_cast() -> None:
    changed = through(sink_record(VALUE, ORDER), type="Cast$Value", spec="id:string,at:int64")
    assert (changed.value["id"], changed.value["at"]) == ("7", 1_767_323_045_678)
    assert changed.value_schema.by_name["id"].schema.type is Type.STRING
    assert changed.value_schema.by_name["at"].schema == INT64
    assert through(sink_record("300"), type="Cast$Value", spec="int32").value == 300
    assert through(sink_record(300), type="Cast$Value", spec="int8").value == 44  # as Java narrows
    assert through(sink_record(1e10), type="Cast$Value", spec="string").value == "1.0E10"
    assert through(sink_record(Decimal("1.50")), type="Cast$Value", spec="string").value == "1.50"
    with pytest.raises(BadRecord):
        through(sink_record("x"), type="Cast$Value", spec="int32")
    with pytest.raises(ConfigError, match="int33"):
        through(sink_record("x"), type="Cast$Value", spec="int33")


def test_timestamp_converter() -> None:
    text = through(
        sink_record(VALUE, ORDER),
        type="TimestampConverter$Value",
        field="at",
        target_type="string",
        format="yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    )
    assert text.value["at"] == "2026-01-02T03:04:05.678Z"
    assert text.value_schema.by_name["at"].schema == STRING
    back = through(
        text,
        type="TimestampConverter$Value",
        field="at",
        target_type="Timestamp",
        format="yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    )
    assert back.value["at"] == AT
    seconds = through(sink_record(AT), type="TimestampConverter$Value", target_type="unix", unix_precision="seconds")
    assert seconds.value == 1_767_323_045


def test_topics() -> None:
    record = sink_record(1).replaced(topic="db.public.orders")
    assert (
        through(record, type="RegexRouter", regex=r"(.*)\.(?<last>.*)", replacement="$1-${last}").topic
        == "db.public-orders"
    )
    assert through(record, type="RegexRouter", regex="orders", replacement="no").topic == "db.public.orders"
    assert through(record, type="TimestampRouter", timestamp_format="yyyy-MM").topic == "db.public.orders-2026-01"


def test_headers() -> None:
    record = through(sink_record(VALUE, ORDER), type="InsertHeader", header="h", value_literal="5")
    assert [(each.key, each.value) for each in record.headers] == [("h", 5)]
    moved = through(record, type="HeaderFrom$Value", fields="note", headers="n", operation="move")
    assert moved.headers[1] == Header("n", "n", STRING.as_optional())
    assert "note" not in moved.value
    assert "note" not in names(moved.value_schema)
    assert [each.key for each in through(moved, type="DropHeaders", headers="h").headers] == ["n"]


def test_predicates_decide() -> None:
    config = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "dead",
        "predicates": "dead,mine",
        "predicates.dead.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "predicates.mine.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.mine.pattern": "t|u",
    }
    (drop,) = steps(config, ALL)
    assert drop(sink_record(None)) is None
    assert drop(sink_record(1)) is not None
    (keep,) = steps({**config, "transforms.drop.predicate": "mine", "transforms.drop.negate": "true"}, ALL)
    assert keep(sink_record(1)) is not None
    assert keep(sink_record(1).replaced(topic="v")) is None


def double_it(record: Any, by: str = "2") -> Any:
    return record.replaced(value=record.value * int(by))


def test_python_functions_are_transforms() -> None:
    name = f"{__name__}:double_it"
    (step,) = steps({"transforms": "x", "transforms.x.type": name, "transforms.x.by": "3"}, ALL)
    assert step(SourceRecord(topic="t", value=4)).value == 12
    with pytest.raises(BadRecord, match="double_it failed: TypeError"):
        step(SourceRecord(topic="t", value=None))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"type": "org.apache.kafka.connect.transforms.InsertFeld$Value"}, "did you mean 'InsertField'"),
        ({"type": "org.apache.kafka.connect.transforms.InsertField"}, r"InsertField\$Key or InsertField\$Value"),
        ({"type": "RegexRouter", "regex": "(", "replacement": ""}, "transforms.x.regex is no regular expression"),
        ({"type": "RegexRouter", "regex": "a"}, "transforms.x.replacement is missing"),
        ({"type": "Filter", "predicate": "p"}, "'p', which `predicates` does not list"),
        ({"type": "no.such:function"}, "cannot be imported"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        steps({"transforms": "x", **{f"transforms.x.{name}": text for name, text in settings.items()}}, ALL)


def test_all_of_kafkas_are_there() -> None:
    assert len(transform_names()) == 26
    assert len(predicate_names()) == 3
