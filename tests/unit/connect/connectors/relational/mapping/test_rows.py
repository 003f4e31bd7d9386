"""What records do to tables: rows, keys that go, and what is rejected, whatever stands around it in a batch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.connect_tasks import sink_record

from ottla.connect import schema as connect
from ottla.connect.api import BadRecord, SinkRecord
from ottla.connect.connectors.relational.mapping.columns import target_of_value
from ottla.connect.connectors.relational.mapping.rows import Rows
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.connectors.relational.steps import Step
from ottla.connect.schema import Schema, Type, struct

KEY = struct("k", id=connect.INT64)
VALUE = struct("v", id=connect.INT64, name=connect.STRING.as_optional())
WIDER = struct("v", id=connect.INT64, name=connect.STRING.as_optional(), more=connect.INT32.as_optional())
ROW = struct("row", optional=True, id=connect.INT64, day=Schema(Type.INT32, name="io.debezium.time.Date"))
SOURCE = struct("s", optional=True, connector=connect.STRING)
ENVELOPE = struct("e", before=ROW, after=ROW, source=SOURCE, op=connect.STRING)
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}


def rows(**settings: str) -> Rows:
    return Rows(SinkSettings(**{"connection.url": "x://", **UPSERT, **settings}))  # type: ignore[arg-type]


def done(of: Rows, *batch: SinkRecord) -> tuple[list[tuple[str, Step]], list[str]]:
    rejected: list[str] = []

    def reject(record: SinkRecord, reason: BadRecord) -> None:
        assert reason.record is record
        rejected.append(str(reason))

    return of.work(batch, reject), rejected


def item(offset: int, key: int | None, name: str | None = None, topic: str = "t", schema: Schema = VALUE) -> Any:
    value = {"id": key, "name": name} if schema is VALUE else {"id": key, "name": name, "more": 1}
    return sink_record(topic, offset, value, key={"id": key}, key_schema=KEY, value_schema=schema)


def event(offset: int, op: str, key: int, day: int | None) -> Any:
    after = None if day is None else {"id": key, "day": day}
    value = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": op}
    return sink_record("t", offset, value, key={"id": key}, key_schema=KEY, value_schema=ENVELOPE)


def gone(offset: int, key: Any) -> Any:
    return sink_record("t", offset, None, key=key, key_schema=KEY)


def test_the_last_row_of_a_key_counts_and_what_goes_goes() -> None:
    ((table, step),), rejected = done(
        rows(), item(0, 1, "a"), item(1, 2, "b"), item(2, 1, "c"), gone(3, {"id": 2}), item(4, 3), gone(5, {"id": 9})
    )
    assert (table, rejected) == ("t", [])
    assert (step.shape.names, step.shape.key) == (("id", "name"), ("id",))
    assert (step.removed, step.put) == ([(2,), (9,)], [(1, "c"), (3, None)])


def test_rows_of_a_table_whose_keys_may_be_the_same_all_come_and_none_before_a_key_that_goes() -> None:
    batch = (item(0, 1, "a"), item(1, 2, "b"), item(2, 1, "c"), gone(3, {"id": 2}), item(4, 3), gone(5, {"id": 9}))
    work = rows().work(batch, lambda *_: None, {"t"})
    assert [(step.removed, step.put) for _, step in work] == [
        ([], [(1, "a"), (2, "b"), (1, "c")]), ([(2,)], [(3, None)]), ([(9,)], [])
    ]  # fmt: skip
    assert all(step.repeating for _, step in work)


def test_several_topics_and_schemas_in_a_batch() -> None:
    work, rejected = done(
        rows(**{"table.name.format": "s.${topic}"}),
        item(0, 1, "a", "one"), item(0, 1, "b", "two"), item(1, 2, "c", "one"), item(2, 1, "d", "one", WIDER),
        item(3, 3, "e", "one"), item(1, 2, "f", "two"),
    )  # fmt: skip
    assert not rejected
    assert [(table, step.shape.names, step.put) for table, step in work] == [
        ("s.one", ("id", "name"), [(1, "a"), (2, "c")]),
        ("s.one", ("id", "name", "more"), [(1, "d", 1)]),
        ("s.one", ("id", "name"), [(3, "e")]),
        ("s.two", ("id", "name"), [(1, "b"), (2, "f")]),
    ]


def test_change_events_are_about_rows() -> None:
    ((_, step),), rejected = done(
        rows(),
        event(0, "r", 1, 0),
        event(1, "c", 2, 19782),
        event(2, "t", 0, None),
        event(3, "d", 1, None),
        gone(4, {"id": 1}),
    )
    assert not rejected
    assert step.removed == [(1,)]
    assert [(key, str(day)) for key, day in step.put] == [(2, "2024-02-29")]


@pytest.mark.parametrize(
    "value",
    [
        {"op": "buy", "after": None, "source": "web"},
        {"op": "d", "after": None, "source": "web"},
        {"op": "d", "after": None, "source": {"page": "web"}},
        {"op": ["d"], "after": None, "source": {"connector": "postgresql"}},
        {"op": "buy", "after": None, "source": {"connector": "cable"}},
    ],
)
def test_what_only_looks_like_a_change_event_is_a_row_of_its_own(value: dict[str, Any]) -> None:
    ((_, step),), rejected = done(rows(), sink_record("t", 0, value, key={"id": 1}))
    assert (rejected, step.removed) == ([], [])
    assert step.shape.names == ("id", "op", "after", "source")


@pytest.mark.parametrize("source", [connect.STRING, struct("s", page=connect.STRING)])
def test_a_schema_that_only_looks_like_a_change_events_is_that_of_a_row(source: Schema) -> None:
    schema = struct("order", op=connect.STRING, after=ROW, source=source)
    value = {"op": "d", "after": None, "source": "web" if source is connect.STRING else {"page": "web"}}
    record = sink_record("t", 0, value, key={"id": 1}, key_schema=KEY, value_schema=schema)
    ((_, step),), rejected = done(rows(), record, record)
    assert (rejected, step.removed, step.shape.names) == ([], [], ("id", "op", "after", "source"))


def test_a_change_event_of_an_unknown_operation_is_a_bad_record_and_no_delete() -> None:
    for known in ([], [event(0, "c", 1, 0)]):
        work, (reason,) = done(rows(), *known, event(1, "buy", 1, None))
        assert "is a change event whose op is 'buy'" in reason
        assert [step.removed for _, step in work] == ([[]] if known else [])


def test_a_bad_record_among_good_ones_is_rejected_by_itself() -> None:
    bad = [
        sink_record("t", 1, "text", key={"id": 1}, key_schema=KEY),
        item(2, None),
        gone(3, None),
        event(4, "u", 5, 10**9),
        sink_record("t", 5, {"id": 1, "name": "x"}, value_schema=VALUE),
    ]
    mixed = [item(0, 1, "a"), *[each for record in bad for each in (record, item(9, 1, "a"))]]
    ((_, step),), rejected = done(rows(), *mixed)
    assert step.put == [(1, "a")]
    reasons = ("has a str for a value", "has a null in its key", "has no key", "does not fit its table", "has no key")
    for (offset, reason), said in zip(enumerate(reasons, 1), rejected, strict=True):
        assert f"t-0, offset {offset}," in said
        assert reason in said


@pytest.mark.parametrize(
    ("settings", "record", "names", "row"),
    [
        ({"pk.mode": "record_value", "pk.fields": "name"}, item(7, 1, "a"), ("name", "id"), ("a", 1)),
        ({"pk.mode": "kafka"}, item(7, 1, "a"),
         ("__connect_topic", "__connect_partition", "__connect_offset", "id", "name"), ("t", 0, 7, 1, "a")),
        ({"pk.mode": "none", "insert.mode": "insert"}, item(7, 1, "a"), ("id", "name"), (1, "a")),
        ({"pk.mode": "record_key", "pk.fields": "number"},
         sink_record("t", 7, {"name": "a"}, key=5, key_schema=connect.INT64), ("number", "name"), (5, "a")),
        ({"fields.whitelist": "name"}, item(7, 1, "a"), ("id", "name"), (1, "a")),
        ({}, sink_record("t", 7, {"a": 1, "b": [1, "é"]}, key={"k": "x"}), ("k", "a", "b"), ("x", 1, '[1, "é"]')),
    ],
)  # fmt: skip
def test_where_keys_come_from(settings: dict[str, str], record: Any, names: tuple[str, ...], row: Any) -> None:
    of = rows(**{"delete.enabled": "false", **settings})
    for _ in range(2):  # the second by what is remembered
        ((_, step),), rejected = done(of, record)
        assert (step.shape.names, step.put, rejected) == (names, [row], [])


def plain(offset: int, **value: Any) -> SinkRecord:
    return sink_record("t", offset, value, key={"id": 1})


def test_a_null_without_a_schema_is_a_null_and_its_type_is_that_of_a_later_value() -> None:
    ((_, step),), rejected = done(rows(), plain(0, id=1, a=None, b=None, n=5))
    assert (step.shape.names, step.put, rejected) == (("id", "a", "b", "n"), [(1, None, None, 5)], [])
    assert step.shape.without_values == ("a", "b")
    narrow = step.within(["id", "n"])
    assert (narrow.shape.names, narrow.put) == (("id", "n"), [(1, 5)])
    ((_, step),) = done(rows(), plain(0, id=1, a=None, b=None), plain(1, id=1, a=[1], b=None))[0]
    assert (step.put, step.shape.without_values) == ([(1, "[1]", None)], ("b",))
    assert step.shape.targets[1] == target_of_value([1])


def test_a_key_out_of_range_that_goes_is_a_bad_record() -> None:
    days = struct("k", day=Schema(Type.INT32, name="io.debezium.time.Date"))
    keys = ({"day": 10_000_000}, {"day": 0})
    ((_, step),), (reason,) = done(rows(), *[sink_record("t", 0, None, key=key, key_schema=days) for key in keys])
    assert ([str(day) for (day,) in step.removed], "does not fit its table" in reason) == (["1970-01-01"], True)


def test_a_null_in_a_key_without_a_schema_is_a_bad_record() -> None:
    for settings in ({}, {"pk.mode": "record_value", "pk.fields": "id", "delete.enabled": "false"}):
        record = sink_record("t", 0, {"id": None, "n": 1}, key={"id": None})
        work, (reason,) = done(rows(**settings), record)
        assert (work, "has a null in its key" in reason) == ([], True)


def test_a_key_of_one_value_where_others_have_several() -> None:
    of = rows()
    both = sink_record("t", 0, {"id": 1, "name": "a"}, key={"a": 1, "b": 2}, value_schema=VALUE)
    one = sink_record("t", 1, {"id": 1, "name": "a"}, key=1, value_schema=VALUE)
    ((_, step),), (reason,) = done(of, both, one)
    assert step.put == [(1, 2, 1, "a")]
    assert "has a key of one value, and others have a, b" in reason


records = st.lists(
    st.one_of(
        st.builds(item, st.integers(0, 9), st.integers(0, 3), st.sampled_from("abc")),
        st.builds(item, st.integers(0, 9), st.integers(0, 3), st.none(), st.just("t"), st.just(WIDER)),
        st.builds(lambda offset, key: gone(offset, {"id": key}), st.integers(0, 9), st.integers(0, 3)),
    ),
    max_size=12,
)


@given(records)
def test_a_batch_leaves_what_its_records_one_by_one_leave(batch: list[SinkRecord]) -> None:
    def after(*batches: list[SinkRecord]) -> dict[int, dict[str, Any]]:
        of, left = rows(), dict[int, dict[str, Any]]()
        for each in batches:
            for _, step in done(of, *each)[0]:
                for (key,) in step.removed:
                    left.pop(key, None)
                for row in step.put:
                    left.setdefault(row[0], {}).update(zip(step.shape.names, row, strict=True))
        return left

    assert after(batch) == after(*[[each] for each in batch])


LONG = struct(
    "row", optional=True, id=connect.INT64, text=connect.STRING.as_optional(), raw=connect.BYTES.as_optional(),
    many=connect.array(connect.STRING, optional=True), price=connect.decimal(2, optional=True),
)  # fmt: skip
NOT_SENT = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("field", "value"), [("text", NOT_SENT), ("raw", NOT_SENT.encode()), ("many", [NOT_SENT]), (None, None)]
)
def test_what_was_not_sent_is_left_out_of_a_row_by_a_plan_that_is_known_too(field: str | None, value: object) -> None:
    envelope = struct("e", before=LONG, after=LONG, source=SOURCE, op=connect.STRING)

    def long(offset: int, **more: object) -> SinkRecord:
        after = {"id": 1, "text": "a", "raw": b"b", "many": [], "price": None, **more}
        change = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": "u"}
        return sink_record("t", offset, change, key={"id": 1}, key_schema=KEY, value_schema=envelope)

    names = {"id", "text", "raw", "many", "price"}
    work, _ = done(rows(), long(0), long(1, **({field: value} if field else {})))
    assert [set(step.shape.names) for _, step in work] == ([names, names - {field}] if field else [names])
