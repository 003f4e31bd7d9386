"""Which rows of a chunk are let go where the stream is ahead of what its reader saw."""

from ottla.connect.connectors.capture.incremental import Chunk
from ottla.connect.connectors.postgres.decoding.incremental import PostgresIncremental, Visibility


def reading() -> PostgresIncremental:
    made = PostgresIncremental(lambda: "1")
    assert made.signal("execute-snapshot", '{"data-collections": ["public.a"]}', ["public.a", "public.b"]) is None
    return made


def begin(
    incremental: PostgresIncremental,
    keys: str,
    *,
    oldest: int = 100,
    unseen_from: int = 105,
    in_progress: frozenset[int] = frozenset(),
) -> None:
    incremental.read_with(Visibility(oldest, unseen_from, in_progress))
    incremental.begin_chunk(Chunk("1", "public.a", {(key,): [key] for key in keys}, end=False, last=(keys[-1],)))


def left(incremental: PostgresIncremental) -> str:
    assert incremental.marked("1 high") == "1"
    found = incremental.closed("1")
    assert found is not None
    return "".join(key for (key,) in found.rows)


def test_a_row_that_changes_between_the_marks_is_let_go() -> None:
    incremental = reading()
    incremental.changed_by(90, "public.a", [("a",)])
    begin(incremental, "abcd")
    incremental.changed_by(101, "public.a", [("b",)])
    assert incremental.marked("1 low") is None
    incremental.changed_by(106, "public.a", [("c",), ("x",)])
    incremental.changed_by(107, "public.b", [("d",)])
    assert left(incremental) == "abd"
    assert incremental.state() == {"tables": ["public.a"], "after": ["d"]}


def test_a_row_changed_by_a_transaction_that_the_reader_did_not_see_is_let_go() -> None:
    incremental = reading()
    incremental.changed_by(101, "public.a", [("a",)])
    incremental.changed_by(102, "public.a", [("b",)])
    incremental.changed_by(105, "public.a", [("c",)])
    begin(incremental, "abcd", in_progress=frozenset({101}))
    incremental.marked("1 low")
    assert left(incremental) == "bd"


def test_numbers_of_transactions_begin_again() -> None:
    incremental = reading()
    incremental.changed_by(0xFFFFFFFF, "public.a", [("a",)])
    incremental.changed_by(3, "public.a", [("b",)])
    begin(incremental, "ab", oldest=0xFFFFFFF0, unseen_from=2)
    incremental.marked("1 low")
    assert left(incremental) == "a"
    waiting = reading()
    assert not waiting.may_begin(5)
    waiting.ready_from = 2
    assert not waiting.may_begin(0xFFFFFFFE)
    assert waiting.may_begin(2)
