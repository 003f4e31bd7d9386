"""Messages as records with positions: where it goes on from after each."""

from typing import Any

from ottla.connect.api import Progress, SourceRecord
from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.postgres.changes import SOURCE, Changes
from ottla.connect.connectors.postgres.pgoutput import UNCHANGED, Begin, Commit, Insert, Message, Relation, Truncate
from ottla.connect.schema import INT64

RELATION = Relation(7, "public", "items", "d", ())
TABLE = TableEvents("t.public.items", [Column("id", 0, INT64, int)], ["id"], SOURCE, unchanged=UNCHANGED)


def changes(position: dict[str, Any], **more: Any) -> Changes:
    made = Changes("t", "db", position, lambda relation: TABLE if relation.oid == 7 else None, lambda: 1, **more)
    made.take(RELATION, 0, [])
    made.take(Relation(8, "public", "other", "d", ()), 0, [])
    return made


def taken(made: Changes, *messages: Message) -> list[SourceRecord | Progress]:
    batch: list[SourceRecord | Progress] = []
    for message in messages:
        made.take(message, 1, batch)
    return batch


def transaction(*relations: int, final: int = 100) -> list[Message]:
    return [
        Begin(final, 0, 5),
        *(Insert(each, [str(n)]) for n, each in enumerate(relations)),
        Commit(final, final + 10, 0),
    ]


def test_each_record_has_the_place_after_it_and_the_last_one_the_end() -> None:
    batch = taken(changes({"lsn": 50}), *transaction(7, 7, 8))
    assert [each.position for each in batch] == [
        {"lsn": 50, "transaction": 100, "events": 1},
        {"lsn": 50, "transaction": 100, "events": 2},
        {"lsn": 110},
    ]
    batch = taken(changes({"lsn": 50}), *transaction(8, 7))
    assert [each.position for each in batch] == [{"lsn": 110}]


def test_what_is_done_is_passed_over_and_counted() -> None:
    made = changes({"lsn": 50, "transaction": 100, "events": 2})
    batch = taken(made, *transaction(7, 8, 7, 7), *transaction(7, final=200))
    keys = [each.key["id"] for each in batch if isinstance(each, SourceRecord)]
    assert keys == [2, 3, 0]


def test_transactions_that_have_nothing_captured_move_the_position_once() -> None:
    batch = taken(changes({"lsn": 50}), *transaction(8), *transaction(8, final=200), *transaction(8, final=300))
    assert batch == [Progress(position={"lsn": 310})]


def test_an_idle_server_moves_the_position_but_not_amid_a_transaction() -> None:
    made = changes({"lsn": 50})
    assert made.caught_up(50) is None
    assert made.caught_up(60) == Progress(position={"lsn": 60})
    taken(made, Begin(100, 0, 5))
    assert made.caught_up(99) is None


def test_truncates_are_told_unless_skipped() -> None:
    message = Truncate((7, 8), False, False)
    (told,) = (each for each in taken(changes({"lsn": 1}), Begin(9, 0, 5), message) if isinstance(each, SourceRecord))
    assert (told.key, told.value["op"]) == (None, "t")
    assert taken(changes({"lsn": 1}, skipped=frozenset({"t"})), Begin(9, 0, 5), message) == []
