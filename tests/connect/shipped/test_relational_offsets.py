"""The table in which the relational sink keeps its offsets."""

from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Table, event

from ottla.connect.api import ConnectError, LogIdentity, Retriable, TopicPartition
from ottla.connect.connectors.relational.sink import RelationalSink
from tests.connect.shipped.databases import rows
from tests.connect.shipped.relational_sinks import ITEMS, KEY, UPSERT, VALUE, item, items, sink, upserting
from tests.support.connect_tasks import TaskContext, opened, sink_record


def test_offsets_of_names_that_differ_in_case_are_apart(engine: Engine) -> None:
    one, other = TopicPartition("items", 0), TopicPartition("Items", 0)
    into = sink(engine, auto_create="true", table_name_format="items")
    into.write([item(0, 1), item(1, 2)])
    into.write([sink_record("Items", 0, {"id": 3, "name": None, "price": None}, value_schema=VALUE)])
    assert into.positions([one, other]) == {one: 2, other: 1}
    assert [row[0] for row in items(engine)] == [1, 2, 3]


def test_offsets_in_the_table_are_changed_and_forgotten(engine: Engine) -> None:
    target = upserting(engine)
    target.write([item(0, 1), item(1, 2)])
    other = TopicPartition("others", 3)
    target.alter_offsets({ITEMS: 1, other: 7})
    assert target.positions([ITEMS, other]) == {ITEMS: 1, other: 7}
    target.alter_offsets({ITEMS: None})
    assert target.positions([ITEMS, other]) == {other: 7}
    target.alter_offsets(None)
    assert target.positions([ITEMS, other]) == {}


def test_a_task_that_should_have_ended_does_not_move_an_offset_that_was_put_back(engine: Engine) -> None:
    late = upserting(engine)
    late.write([item(0, 1), item(1, 2)])
    upserting(engine).alter_offsets({ITEMS: 0})
    with pytest.raises(Retriable, match="the offset of items-0 in table ottla_offsets was changed by another writer"):
        late.write([item(2, 3)])
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(1,), (2,)]
    assert late.positions([ITEMS]) == {ITEMS: 0}
    late.write([item(0, 1), item(1, 2), item(2, 3)])
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(1,), (2,), (3,)]


def test_an_offset_of_another_log_is_refused_until_somebody_sets_it(engine: Engine) -> None:
    upserting(engine).write([item(0, 1), item(1, 2)])
    other = TaskContext()
    other.log_identity = LogIdentity("another-cluster", "another-topic")
    into = upserting(engine, other)
    kept = into.positions([ITEMS])[ITEMS]
    assert (kept, kept.log) == (2, LogIdentity("the-cluster", "the-topic"))
    with pytest.raises(
        ConnectError, match=r"has offset 2 of items-0 in cluster the-cluster, .* give one of them another"
    ):
        into.write([item(2, 3)])
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(1,), (2,)]
    into.alter_offsets({ITEMS: 2})
    assert into.positions([ITEMS])[ITEMS].log == LogIdentity()
    into.write([item(2, 3)])
    assert into.positions([ITEMS])[ITEMS].log == other.log_identity
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(1,), (2,), (3,)]


def made_before_there_were_ids(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            'CREATE TABLE ottla_offsets (connector VARCHAR(190), topic VARCHAR(249), "partition" INTEGER, '
            'next_offset BIGINT NOT NULL, PRIMARY KEY (connector, topic, "partition"))'.replace(
                '"', "`" if engine.dialect.name in ("mysql", "mariadb") else '"'
            )
        )
        connection.exec_driver_sql("INSERT INTO ottla_offsets VALUES ('tested', 'items', 0, 1), ('else', 't', 0, 5)")


def test_a_table_of_offsets_from_before_there_were_ids_goes_on_and_gains_them(engine: Engine) -> None:
    made_before_there_were_ids(engine)
    into = upserting(engine)
    kept = into.positions([ITEMS])[ITEMS]
    assert (kept, kept.log) == (1, LogIdentity())
    into.write([item(0, 1), item(1, 2)])
    assert rows(engine, "SELECT id FROM items") == [(2,)]
    found = rows(engine, "SELECT connector, next_offset, cluster_id, topic_id FROM ottla_offsets ORDER BY connector")
    assert found == [("else", 5, None, None), ("tested", 2, "the-cluster", "the-topic")]


def test_other_tasks_may_add_each_column_at_the_same_moment(engine: Engine) -> None:
    made_before_there_were_ids(engine)
    asked: list[str] = []

    def the_others_are_first(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("ALTER TABLE ottla_offsets") and statement not in asked:
            asked.append(statement)
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)

    event.listen(Engine, "before_cursor_execute", the_others_are_first)
    try:
        into = upserting(engine)
    finally:
        event.remove(Engine, "before_cursor_execute", the_others_are_first)
    assert [statement.split()[5] for statement in asked] == ["cluster_id", "topic_id"]
    into.write([item(0, 1), item(1, 2)])
    assert into.positions([ITEMS])[ITEMS].log == LogIdentity("the-cluster", "the-topic")
    into.close()


def test_two_tasks_may_make_tables_at_the_same_moment(engine: Engine) -> None:
    settings = {"connection.url": engine.url.render_as_string(hide_password=False)} | UPSERT
    other_place = TopicPartition("items", 1)
    one, other = opened(RelationalSink, settings, ITEMS), opened(RelationalSink, settings, other_place)
    asked: list[str] = []

    def the_other_is_first(table: Table, *_: Any, **__: Any) -> None:
        asked.append(table.name)
        if asked == ["ottla_offsets"]:
            other.positions([other_place])
        elif asked[-2:] == ["ottla_offsets", "items"]:
            other.write([sink_record("items", 0, {"id": 2, "name": "b", "price": None}, partition=1, key={"id": 2},
                                     key_schema=KEY, value_schema=VALUE)])  # fmt: skip

    event.listen(Table, "before_create", the_other_is_first)
    try:
        assert one.positions([ITEMS]) == {}
        one.write([item(0, 1, "a")])
    finally:
        event.remove(Table, "before_create", the_other_is_first)
    assert asked == ["ottla_offsets", "ottla_offsets", "items", "items"]
    assert rows(engine, "SELECT id, name FROM items ORDER BY id") == [(1, "a"), (2, "b")]
    one.close()
    other.close()
