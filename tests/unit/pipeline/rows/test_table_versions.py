"""From versions with validity intervals to the changes that made them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.rows.table_history import instant_us
from ottla.pipeline.rows.table_versions import NoVersionsError, changes_of
from ottla.pipeline.rows.version_runs import AT, OP
from ottla.pipeline.rows.version_store import STATUSES, VersionStore
from ottla.pipeline.sinks.intervals import RowChange, intervals

TIME = pa.timestamp("us", "UTC")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SCHEMA = pa.schema([*COLUMNS, (VALID_FROM, TIME), (VALID_TO, TIME)])
Version = tuple[int, str, int, int | None]


def table(*versions: Version) -> pa.Table:
    columns = list(zip(*versions, strict=True)) or [()] * 4
    return pa.Table.from_arrays([pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA)  # fmt: skip


def changes(*versions: Version, since: int | None = None) -> list[tuple[Any, ...]]:
    made = changes_of(table(*versions), ["id"], since).to_pydict()
    return list(zip(made["id"], made["name"], made[AT], map(chr, made[OP]), strict=True))


def test_a_version_is_a_change_and_an_end_that_no_other_follows_is_a_delete() -> None:
    assert changes((2, "x", 5, None), (1, "b", 17, 20), (1, "a", 10, 17), (1, "c", 30, None)) == [
        (1, "a", 10, "r"), (1, "b", 17, "u"), (1, "b", 20, "d"), (1, "c", 30, "u"), (2, "x", 5, "r"),
    ]  # fmt: skip
    assert changes((1, "a", 10, 10), (1, "b", 10, None)) == [(1, "a", 10, "r"), (1, "b", 10, "u")]
    assert changes((1, "a", 10, 10)) == [(1, "a", 10, "r"), (1, "a", 10, "d")]
    assert changes() == []


def test_what_begins_after_the_time_since_which_all_inserts_are_there_is_an_insert() -> None:
    assert changes((1, "a", 10, None), (2, "b", 11, None), since=10) == [(1, "a", 10, "r"), (2, "b", 11, "c")]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ([(1, "a", 10, 20), (1, "b", 19, None)], "key 1 overlap, from 1970-01-01T00:00:00.000Z on: id is not its key"),
        ([(1, "a", 10, None), (1, "b", 19, None)], "overlap"),
        ([(1, "a", 10, 9)], "overlap"),
        ([(None, "a", 10, 11)], "1 of its rows have no 'id'"),
        ([(1, "a", None, 11)], "1 of its rows have no 'valid_from'"),
    ],
)
def test_a_table_of_something_else_is_refused(versions: list[Any], said: str) -> None:
    with pytest.raises(NoVersionsError, match=said):
        changes(*versions)


def test_times_have_a_zone() -> None:
    assert instant_us("2026-01-31T00:00:00+01:00") == datetime(2026, 1, 30, 23, tzinfo=UTC).timestamp() * 1e6
    assert instant_us("2026-01-31T00:00:00") is None
    assert instant_us("yesterday") is None


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("cud"), st.integers(1, 12), st.sampled_from(["a", "b"])),
        min_size=1,
        max_size=25,
    ),
    st.integers(0, 14),
)
def test_the_table_answers_as_its_changes_do(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, str, int, str]], asked: int
) -> None:
    """The store of what `apply_changes` makes of changes has the version of each time, by a search of the table."""
    found = intervals([RowChange((key,), op, at) for key, op, at, _ in events], {}, ())
    versions = [(events[each.number][0], events[each.number][3], each.start, each.end) for each in found.new]
    if not versions:
        return
    store = VersionStore(_directory(tmp_path_factory), COLUMNS, ("id",), 0)
    made = changes_of(table(*versions), ["id"], 0)
    with store.locked():
        snapshot = store.keep(made, 0, 100)
    keys = list(range(4))
    answer = snapshot.look_up([pa.array(keys, pa.int64())], pa.array([asked] * 4, pa.int64()), ["name"])
    for key in keys:
        valid = [
            name
            for number, name, start, end in versions
            if number == key and start <= asked and (end is None or asked < end)
        ]
        assert answer.rows["name"][key].as_py() == (valid[0] if valid else None)
        assert STATUSES[answer.statuses[key]] == ("found" if valid else "absent")


def _directory(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("store")
