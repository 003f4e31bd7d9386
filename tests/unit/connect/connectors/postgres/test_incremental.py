"""Which rows of a chunk are let go, and what is left of signals."""

import json

import pytest

from ottla.connect.connectors.postgres.incremental import Chunk, Incremental

KNOWN = ["public.a", "public.b"]


def reading(*tables: str) -> Incremental:
    made = Incremental(lambda: "1")
    assert made.signal("execute-snapshot", json.dumps({"data-collections": list(tables)}), KNOWN) is None
    return made


def chunk(
    keys: str,
    *,
    end: bool = False,
    oldest: int = 100,
    unseen_from: int = 105,
    in_progress: frozenset[int] = frozenset(),
) -> Chunk:
    rows = {(key,): [key] for key in keys}
    return Chunk("1", "public.a", dict(rows), end, (keys[-1],), oldest, unseen_from, in_progress)


def left(incremental: Incremental) -> str:
    found = incremental.marked("1 high")
    assert found is not None
    return "".join(key for (key,) in found.rows)


def test_a_row_that_changes_between_the_marks_is_let_go() -> None:
    incremental = reading("public.a")
    incremental.changed(90, "public.a", [("a",)])
    incremental.begin_chunk(chunk("abcd"))
    incremental.changed(101, "public.a", [("b",)])
    assert incremental.marked("1 low") is None
    incremental.changed(106, "public.a", [("c",), ("x",)])
    incremental.changed(107, "public.b", [("d",)])
    assert left(incremental) == "abd"
    assert incremental.state() == {"tables": ["public.a"], "after": ["d"]}


def test_a_row_changed_by_a_transaction_that_the_reader_did_not_see_is_let_go() -> None:
    incremental = reading("public.a")
    incremental.changed(101, "public.a", [("a",)])
    incremental.changed(102, "public.a", [("b",)])
    incremental.changed(105, "public.a", [("c",)])
    incremental.begin_chunk(chunk("abcd", in_progress=frozenset({101})))
    incremental.marked("1 low")
    assert left(incremental) == "bd"


def test_numbers_of_transactions_begin_again() -> None:
    incremental = reading("public.a")
    incremental.changed(0xFFFFFFFF, "public.a", [("a",)])
    incremental.changed(3, "public.a", [("b",)])
    incremental.begin_chunk(chunk("ab", oldest=0xFFFFFFF0, unseen_from=2))
    incremental.marked("1 low")
    assert left(incremental) == "a"
    assert reading("public.a").may_begin(5, 5)
    waiting = reading("public.a")
    assert not waiting.may_begin(0xFFFFFFFE, 2)
    assert waiting.may_begin(2, 7)


def test_tables_are_read_one_after_the_other_and_go_on_after_a_restart() -> None:
    incremental = reading("public.a", "public.b")
    incremental.until = ("z",)
    incremental.begin_chunk(chunk("ab"))
    restored = Incremental.restored(incremental.state(), lambda: "2")
    assert (restored.tables, restored.after, restored.until) == (["public.a", "public.b"], None, ("z",))
    restored.begin_chunk(chunk("ab", end=True))
    assert restored.marked("0 high") is None, "a mark of a run before"
    restored.marked("1 low")
    assert left(restored) == "ab"
    assert restored.state() == {"tables": ["public.b"]}


def test_a_truncated_table_has_no_rows() -> None:
    incremental = reading("public.a")
    incremental.begin_chunk(chunk("ab"))
    incremental.truncated("public.a")
    assert left(incremental) == ""


def test_a_signal_stops_one_table_or_all() -> None:
    incremental = reading("public.a", "public.b")
    incremental.begin_chunk(chunk("ab"))
    incremental.signal("stop-snapshot", '{"data-collections": ["public.a"]}', KNOWN)
    assert (incremental.tables, incremental.chunk) == (["public.b"], None)
    incremental.signal("stop-snapshot", None, KNOWN)
    assert incremental.state() == {}


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        ("log", None, "a signal of type 'log' is left out"),
        ("execute-snapshot", "nothing", "a signal has data that is not"),
        ("execute-snapshot", '["public.a"]', "a signal has data that is not"),
        ("execute-snapshot", '{"data-collections": ["public.c"]}', "no captured table is called so"),
    ],
)
def test_what_is_wrong_with_a_signal(kind: str, data: str | None, sentence: str) -> None:
    incremental = Incremental(lambda: "1")
    assert sentence in str(incremental.signal(kind, data, KNOWN))
    assert incremental.state() == {}
