"""Records of one table: keys, tombstones, and what is not known."""

from typing import Any

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.capture.envelope import Column, TableEvents, context_headers, source_schema
from ottla.connect.connectors.capture.masks import Mask
from ottla.connect.schema import INT32, INT64, STRING, Schema

SOURCE = source_schema("tested")
UNCHANGED = object()
COLUMNS = [
    Column("id", 0, INT32, int, None, 0),
    Column("name", 1, STRING, str, "unavailable", ""),
    Column("note", 2, STRING.as_optional(), str, "unavailable", ""),
]


def table(**more: Any) -> TableEvents:
    return TableEvents("t", COLUMNS, ["id"], SOURCE, unchanged=UNCHANGED, **more)


def shown(records: Any) -> list[tuple[Any, ...]]:
    return [
        (each.key, each.value and (each.value["op"], each.value["before"], each.value["after"])) for each in records
    ]


def test_a_key_that_did_not_change_is_an_update_even_if_the_identity_is_told() -> None:
    records = table().updated(["1", None, None], False, ["1", "b", UNCHANGED], {}, 0)
    assert shown(records) == [({"id": 1}, ("u", None, {"id": 1, "name": "b", "note": "unavailable"}))]


def test_what_is_unchanged_is_taken_from_a_whole_old_row() -> None:
    records = table().updated(["1", "a", "long"], True, ["1", "b", UNCHANGED], {}, 0)
    before, after = {"id": 1, "name": "a", "note": "long"}, {"id": 1, "name": "b", "note": "long"}
    assert shown(records) == [({"id": 1}, ("u", before, after))]


def test_a_key_that_is_not_sent_because_it_is_unchanged_stands_in_the_identity() -> None:
    columns = [Column("id", 0, STRING, str, "unavailable", ""), COLUMNS[1], COLUMNS[2]]
    made = TableEvents("t", columns, ["id"], SOURCE, unchanged=UNCHANGED)
    records = made.updated(["long", None, None], False, [UNCHANGED, "b", UNCHANGED], {}, 0)
    after = {"id": "long", "name": "b", "note": "unavailable"}
    assert shown(records) == [({"id": "long"}, ("u", None, after))]


def test_an_identity_without_the_key_says_nothing_of_it() -> None:
    keyed = table(key_in_identity=False)
    assert shown(keyed.deleted(["1", "a", None], {}, 0)) == [(None, ("d", {"id": 1, "name": "a", "note": None}, None))]
    assert shown(keyed.updated([None, "a", None], False, ["1", "b", None], {}, 0))[0][0] == {"id": 1}


def test_every_record_says_whose_it_is_and_those_of_a_changed_key_what_the_other_key_is() -> None:
    context = context_headers("shop", "postgresql")
    names = [f"__debezium.context.{name}" for name in ("connectorLogicalName", "taskId", "connectorName")]
    assert [(each.key, each.value) for each in context] == list(zip(names, ("shop", "0", "postgresql"), strict=True))
    told = table(headers=context)
    records = told.updated(["1", None, None], False, ["2", "b", None], {}, 0)
    records += told.deleted(["2", None, None], {}, 0)
    assert [each.headers[0].key for each in records] == [
        "__debezium.newkey",
        "__debezium.newkey",
        "__debezium.oldkey",
        names[0],
        names[0],
    ]
    assert all(each.headers[-3:] == context for each in records)


def test_a_key_has_its_columns_in_its_own_order_and_defaults_stand_for_what_is_not_known() -> None:
    columns = [
        Column("a", 0, INT64, int, None, 0),
        Column("b", 1, STRING, str, None, ""),
        Column("c", 2, Schema(INT64.type, default=7, has_default=True), int, None, 0),
    ]
    made = TableEvents("t", columns, ["b", "a"], SOURCE, unchanged=UNCHANGED)
    deleted = made.deleted(["1", "x", None], {}, 0)[0]
    assert list(deleted.key.items()) == [("b", "x"), ("a", 1)]
    assert deleted.value["before"] == {"a": 1, "b": "x", "c": 7}


def test_without_tombstones_a_delete_is_one_record() -> None:
    assert len(list(table(tombstones=False).deleted(["1", None, None], {}, 0))) == 1


def test_a_table_without_a_key_has_records_without_one() -> None:
    keyless = TableEvents("t", COLUMNS, [], SOURCE, unchanged=UNCHANGED)
    assert shown(keyless.deleted(["1", "a", "n"], {}, 0)) == [(None, ("d", {"id": 1, "name": "a", "note": "n"}, None))]
    assert keyless.key_schema is None


def test_masks_are_of_rows_and_not_of_keys_and_keys_may_have_columns_that_rows_do_not() -> None:
    hidden = Mask({"masked": "true"}, lambda value: f"<{value}>")
    columns = [
        Column("id", 0, STRING, str, None, "", hidden),
        Column("no", 1, INT32, int, None, 0, None, in_rows=False),
        Column("note", 2, STRING.as_optional(), str, "unavailable", "", hidden),
    ]
    made = TableEvents("t", columns, ["id", "no"], SOURCE, unchanged=UNCHANGED)
    (changed,) = made.updated(None, False, ["a", "7", UNCHANGED], {}, 0)
    assert changed.key == {"id": "a", "no": 7}
    assert changed.value["after"] == {"id": "<a>", "note": "<unavailable>"}
    assert made.deleted(["a", "7", None], {}, 0)[0].value["before"] == {"id": "<a>", "note": "<None>"}
    row = made.value_schema.by_name["after"].schema
    assert [(each.name, each.schema.parameters) for each in row.fields] == [
        ("id", {"masked": "true"}),
        ("note", {"masked": "true"}),
    ]
    assert made.key_schema is not None
    assert [each.schema.parameters for each in made.key_schema.fields] == [None, None]


def test_times_are_those_of_the_clock_in_three_units() -> None:
    value = table().created(["1", "a", None], {}, 1_700_000_000_123_456_789).value
    assert (value["ts_ms"], value["ts_us"], value["ts_ns"]) == (
        1_700_000_000_123,
        1_700_000_000_123_456,
        1_700_000_000_123_456_789,
    )


def test_a_value_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConnectError, match="column id of the rows for t has a value that cannot be read"):
        table().created(["x", "a", None], {}, 0)
    day = TableEvents(
        "t", [Column("day", 0, INT32, lambda value: value.toordinal(), None, 0)], [], SOURCE, unchanged=UNCHANGED
    )
    with pytest.raises(ConnectError, match="column day of the rows for t has a value that cannot be read"):
        day.created(["0000-00-00"], {}, 0)
