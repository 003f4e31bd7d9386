"""Operations on a table in as few steps as leave the same rows behind: held against doing one after the other."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.relational.rows import Put, Remove, Shape, steps

WIDE = Shape(("id", "a", "b"), (), ("id",), ())
NARROW = Shape(("id", "a"), (), ("id",), ())
KEY = Shape(("id",), (), ("id",), ())

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
def test_inserts_in_steps_come_in_order(done: list[Put | Remove]) -> None:
    in_steps: list[tuple[str, object]] = []
    for step in steps(done, by_key=False):
        in_steps += [("gone", key) for key in step.removed] + [("put", row) for row in step.put]
    assert in_steps == [("gone", each.key) if isinstance(each, Remove) else ("put", each.row) for each in done]
