"""Operations on a table in as few steps as leave the same rows behind: held against doing one after the other."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.relational.steps import Row, Shape, Step, Steps

WIDE = Shape(("id", "a", "b"), (), ("id",), ())
NARROW = Shape(("id", "a"), (), ("id",), ())
KEY = Shape(("id",), (), ("id",), ())


@dataclass
class Put:
    shape: Shape
    row: Row


@dataclass
class Remove:
    shape: Shape
    key: Row


def steps(operations: list[Put | Remove], *, by_key: bool) -> list[Step]:
    collected = Steps(by_key=by_key)
    for each in operations:
        if isinstance(each, Put):
            collected.put(each.shape, each.row)
        else:
            collected.remove(each.shape, each.key)
    return collected.finish()


keys = st.integers(0, 3)
operations = st.lists(
    st.one_of(
        st.builds(lambda key, a, b: Put(WIDE, (key, a, b)), keys, st.integers(), st.integers()),
        st.builds(lambda key, a: Put(NARROW, (key, a)), keys, st.integers()),
        st.builds(lambda key: Remove(KEY, (key,)), keys),
    )
)


@given(operations)
def test_upserts_in_steps_leave_the_same_rows(done: list[Put | Remove]) -> None:
    expected: dict[int, dict[str, int]] = {}
    for each in done:
        if isinstance(each, Remove):
            expected.pop(each.key[0], None)
        else:
            expected.setdefault(each.row[0], {}).update(zip(each.shape.names, each.row, strict=True))
    rows: dict[int, dict[str, int]] = {}
    for step in steps(done, by_key=True):
        assert len({row[0] for row in step.put}) == len(step.put), "a key comes once in a statement"
        for key in step.removed:
            rows.pop(key[0], None)
        for row in step.put:
            rows.setdefault(row[0], {}).update(zip(step.shape.names, row, strict=True))
    assert rows == expected


@given(operations)
def test_inserts_in_steps_leave_the_same_rows_in_order(done: list[Put | Remove]) -> None:
    expected: list[Row] = []
    for each in done:
        if isinstance(each, Put):
            expected.append(each.row)
        else:
            expected = [row for row in expected if row[:1] != each.key]
    rows: list[Row] = []
    for step in steps(done, by_key=False):
        rows = [row for row in rows if row[:1] not in step.removed] + step.put
    assert rows == expected


def test_keys_that_go_alone_and_rows_after_them_are_one_step() -> None:
    (step,) = steps([Remove(KEY, (1,)), Remove(KEY, (2,)), Put(WIDE, (1, 2, 3))], by_key=True)
    assert (step.shape, step.removed, step.put) == (WIDE, [(1,), (2,)], [(1, 2, 3)])
    assert steps([], by_key=True) == []
