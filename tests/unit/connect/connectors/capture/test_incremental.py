"""Which rows of a chunk are let go, and what is left of signals."""

import json

import pytest

from ottla.connect.connectors.capture.incremental import Chunk, Incremental

KNOWN = ["public.a", "public.b"]


def reading(*tables: str) -> Incremental:
    made = Incremental(lambda: "1")
    assert made.signal("execute-snapshot", json.dumps({"data-collections": list(tables)}), KNOWN) is None
    return made


def chunk(keys: str, *, end: bool = False) -> Chunk:
    return Chunk("1", "public.a", {(key,): [key] for key in keys}, end, (keys[-1],))


def left(incremental: Incremental) -> str:
    found = incremental.closed("1")
    assert found is not None
    return "".join(key for (key,) in found.rows)


def test_a_row_that_changes_between_the_marks_is_let_go() -> None:
    incremental = reading("public.a")
    incremental.begin_chunk(chunk("abcd"))
    incremental.changed("public.a", [("b",)])
    incremental.opened("1")
    incremental.changed("public.a", [("c",), ("x",)])
    incremental.changed("public.b", [("d",)])
    assert left(incremental) == "abd"
    assert incremental.state() == {"tables": ["public.a"], "after": ["d"]}


def test_tables_are_read_one_after_the_other_and_go_on_after_a_restart() -> None:
    incremental = reading("public.a", "public.b")
    incremental.until = ("z",)
    incremental.begin_chunk(chunk("ab"))
    restored = Incremental(lambda: "2", incremental.state())
    assert (restored.tables, restored.after, restored.until) == (["public.a", "public.b"], None, ("z",))
    restored.begin_chunk(chunk("ab", end=True))
    assert restored.closed("0") is None, "a mark of a run before"
    restored.opened("1")
    assert left(restored) == "ab"
    assert restored.state() == {"tables": ["public.b"]}


def test_a_chunk_that_is_read_again_has_marks_of_its_own() -> None:
    incremental = reading("public.a")
    incremental.begin_chunk(chunk("ab"))
    incremental.opened("1")
    incremental.read_again()
    assert incremental.closed("1") is None
    assert incremental.state() == {"tables": ["public.a"]}


def test_a_table_with_another_key_is_read_from_its_start() -> None:
    incremental = reading("public.a")
    incremental.read_by(["id"])
    incremental.until = ("z",)
    incremental.begin_chunk(chunk("ab"))
    left(incremental)
    restored = Incremental(lambda: "2", incremental.state())
    restored.read_by(["id"])
    assert (restored.after, restored.until) == (("b",), ("z",))
    restored.read_by(["id", "part"])
    assert (restored.after, restored.until) == (None, None)


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


def test_a_signal_may_say_that_it_is_for_an_incremental_snapshot_of_whole_tables() -> None:
    incremental = Incremental(lambda: "1")
    data = {"data-collections": ["public.a"], "type": "INCREMENTAL", "additional-conditions": []}
    assert incremental.signal("execute-snapshot", json.dumps(data), KNOWN) is None
    assert incremental.tables == ["public.a"]


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        (
            "execute-snapshot",
            '{"data-collections": ["public.a"], "type": "BLOCKING"}',
            "a signal for a snapshot of type 'BLOCKING' is left out: incremental is known",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["public.a"], "additional-conditions": '
            '[{"data-collection": "public.a", "filter": "id < 5"}]}',
            "a signal with additional-conditions is left out, and nothing is read: tables are read whole",
        ),
        (
            "execute-snapshot",
            '{"data-collections": ["public.a"], "additional-condition": "id < 5"}',
            "a signal with additional-condition is left out",
        ),
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
