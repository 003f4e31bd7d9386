"""Messages as records with positions: where it goes on from after each."""

from collections.abc import Callable
from typing import Any

from ottla.connect.api import Progress, SourceRecord
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.capture.transactions import Transactions
from ottla.connect.connectors.postgres.decoding.changes import SOURCE, Changes, Origin
from ottla.connect.connectors.postgres.decoding.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    Truncate,
    Update,
)
from ottla.connect.connectors.postgres.messages import Messages
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.schema import INT64

RELATION = Relation(7, "public", "items", "d", ())
TABLE = TableEvents("t.public.items", [Column("id", 0, INT64, int)], ["id"], SOURCE, unchanged=UNCHANGED)


class Listening:
    """What listens to the signal table, and to all changes."""

    def __init__(self, table: str, heard: list[tuple[int, str]]) -> None:
        self.table = table
        self._heard = heard

    def changed(self, relation: Relation, change: Message, _xid: int | None) -> None:
        self._heard.append((relation.oid, type(change).__name__))

    def marked(self, _message: LogicalMessage) -> list[SourceRecord]:
        return []

    def position(self) -> dict[str, Any]:
        return {}


def changes(
    position: dict[str, Any],
    *,
    xmin: Callable[[], int | None] = lambda: None,
    messages: Messages | None = None,
    listener: Listening | None = None,
    **rules: Any,
) -> Changes:
    described = lambda relation: TABLE if relation.oid in (7, 9) else None  # noqa: E731
    made = Changes(Origin("t", "db", xmin), position, described, Rules(lambda: 1, **rules), listener, messages)
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
        {"lsn": 110, "commit": 110},
    ]
    batch = taken(changes({"lsn": 50}), *transaction(8, 7))
    assert [each.position for each in batch] == [{"lsn": 110, "commit": 110}]


def test_the_sequence_says_where_the_transaction_before_ended_also_after_a_restart() -> None:
    batch = taken(changes({"lsn": 50}), *transaction(7, 7), *transaction(7, final=200))
    records = [each for each in batch if isinstance(each, SourceRecord)]
    sequences = [each.value["source"]["sequence"] for each in records]
    assert sequences == ['[null,"1"]', '[null,"1"]', '["110","1"]']
    for done, record in enumerate(records, 1):
        again = changes(dict(record.position or {}))
        again.caught_up(105)
        rest = taken(again, *(transaction(7, 7) if done == 1 else []), *transaction(7, final=200 if done < 3 else 300))
        found = [each.value["source"]["sequence"] for each in rest if isinstance(each, SourceRecord)]
        assert found == (sequences[done:] or ['["210","1"]'])


def test_messages_amid_a_transaction_and_between_two_come_once() -> None:
    stream: list[tuple[int, Message]] = [
        (100, Begin(100, 7_000, 5)),
        (101, LogicalMessage(True, 0, "outbox", b"one")),
        (102, LogicalMessage(True, 0, "audit", b"not asked for")),
        (103, Insert(7, ["1"])),
        (104, Commit(100, 110, 7_000)),
        (120, LogicalMessage(False, 0, "outbox", b"two")),
        (130, Begin(200, 8_000, 6)),
        (131, LogicalMessage(True, 0, "ottla-incremental", b"low")),
        (132, Insert(7, ["2"])),
        (133, Commit(200, 210, 8_000)),
    ]
    names: dict[str, Any] = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "db",
        "topic.prefix": "t",
        "message.prefix.exclude.list": "AUDIT",
        "binary.handling.mode": "hex",
    }
    settings = PostgresSettings(**names)

    def told_from(position: dict[str, Any]) -> list[SourceRecord]:
        made = changes(position, transactions=Transactions("t.transaction"), messages=Messages(settings, SOURCE))
        batch: list[SourceRecord | Progress] = []
        for lsn, message in stream:
            if lsn >= 120 and lsn <= made.position()["lsn"]:  # the server does not send it again
                continue
            made.take(message, lsn, batch)
        return [each for each in batch if isinstance(each, SourceRecord) and each.topic != "t.transaction"]

    records = told_from({"lsn": 50})
    amid, row, alone, other = records
    assert (amid.topic, amid.key, amid.value["op"]) == ("t.message", {"prefix": "outbox"}, "m")
    assert amid.value["message"] == {"prefix": "outbox", "content": b"one".hex()}
    assert amid.value["transaction"] == {"id": "5:101", "total_order": 1, "data_collection_order": 1}
    assert row.value["transaction"]["total_order"] == 2
    assert alone.value["transaction"] is None
    block = alone.value["source"]
    assert (block["txId"], block["lsn"], block["sequence"], block["ts_ms"]) == (None, 120, '["120","120"]', 7)
    assert alone.position == {"lsn": 120, "commit": 120}  # a commit that begins where the message ends is yet to come
    assert other.value["source"]["sequence"] == '["120","132"]'
    for done, record in enumerate(records[:2], 1):
        rest = told_from(dict(record.position or {}))
        assert [each.value for each in rest] == [each.value for each in records[done:]]


def test_an_update_is_left_out_by_what_it_has_become() -> None:
    update: list[Message] = [Begin(9, 0, 5), Update(7, ["1"], False, ["2"]), Update(7, None, False, ["2"])]
    for skipped, left in (
        ("u", ["d", None, "c"]),
        ("d", ["c", "u"]),
        ("c", ["d", None, "u"]),
        ("t", ["d", None, "c", "u"]),
    ):
        batch = taken(changes({"lsn": 1}, skipped=frozenset({skipped})), *update)
        found = [each.value and each.value["op"] for each in batch if isinstance(each, SourceRecord)]
        assert found == left, skipped


def test_the_slots_xmin_is_looked_up_once_in_a_transaction() -> None:
    looks = iter([3, None])
    batch = taken(changes({"lsn": 50}, xmin=lambda: next(looks)), *transaction(7, 7), *transaction(7, final=200))
    found = [each.value["source"]["xmin"] for each in batch if isinstance(each, SourceRecord)]
    assert found == [3, 3, None]


def test_what_is_done_is_passed_over_and_counted() -> None:
    made = changes({"lsn": 50, "transaction": 100, "events": 2})
    batch = taken(made, *transaction(7, 8, 7, 7), *transaction(7, final=200))
    keys = [each.key["id"] for each in batch if isinstance(each, SourceRecord)]
    assert keys == [2, 3, 0]


def test_transactions_that_have_nothing_captured_move_the_position_once() -> None:
    batch = taken(changes({"lsn": 50}), *transaction(8), *transaction(8, final=200), *transaction(8, final=300))
    assert batch == [Progress(position={"lsn": 310, "commit": 310})]


def test_an_idle_server_moves_the_position_but_not_amid_a_transaction() -> None:
    made = changes({"lsn": 50})
    assert made.caught_up(50) is None
    assert made.caught_up(60) == Progress(position={"lsn": 60})
    taken(made, Begin(100, 0, 5))
    assert made.caught_up(99) is None


def test_what_is_done_of_a_transaction_is_not_forgotten_before_it_comes_again() -> None:
    half_done = {"transaction": 200, "events": 2, "begun": True}
    for transactions in (None, Transactions("t.transaction")):
        made = changes({"lsn": 50, **half_done}, transactions=transactions)
        assert made.position() == {"lsn": 50, **half_done}
        assert made.caught_up(150) == Progress(position={"lsn": 150, **half_done})
        taken(made, LogicalMessage(False, 0, "heartbeat", b""))
        assert made.position() == {"lsn": 1, "commit": 1, **half_done}
        taken(made, Begin(200, 0, 5))
        assert {**made.position(), "begun": True} == {"lsn": 1, "commit": 1, **half_done}
        again = taken(changes(made.position(), transactions=transactions), *transaction(7, 7, 7, final=200))
        keys = [each.key["id"] for each in again if isinstance(each, SourceRecord) and each.topic == TABLE.topic]
        assert keys == [2]
        taken(made, Insert(7, ["1"]), Commit(200, 210, 0))
        assert made.position() == {"lsn": 210, "commit": 210}
    made = changes({"lsn": 50, **half_done})  # and the transaction does not come: the server is another one
    assert taken(made, *transaction(7, final=300))[-1].position == {"lsn": 310, "commit": 310}


def test_truncates_are_told_unless_skipped() -> None:
    message = Truncate((7, 8), False, False)
    (told,) = (each for each in taken(changes({"lsn": 1}), Begin(9, 0, 5), message) if isinstance(each, SourceRecord))
    assert (told.key, told.value["op"]) == (None, "t")
    assert taken(changes({"lsn": 1}, skipped=frozenset({"t"})), Begin(9, 0, 5), message) == []


EVERYTHING: list[Message] = [
    Begin(100, 1_000, 5),
    Insert(7, ["1"]),
    Insert(8, ["1"]),
    Update(7, ["1"], False, ["2"]),
    Update(7, None, False, ["2"]),
    Insert(9, ["1"]),
    Truncate((9, 7), False, False),
    Delete(7, ["2"], False),
    Insert(9, ["2"]),
    Commit(100, 110, 1_000),
    Begin(200, 2_000, 6),
    Insert(8, ["1"]),
    Commit(200, 210, 2_000),
]


def told(position: dict[str, Any], **more: Any) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Transaction metadata, and the positions: `id, total, of the table` for each record."""
    transactions = None if more.pop("silent", False) else Transactions("t.transaction")
    made = changes(position, transactions=transactions, **more)
    made.take(Relation(9, "public", "more", "d", ()), 0, [])
    batch: list[SourceRecord | Progress] = []
    for lsn, message in enumerate(EVERYTHING):
        made.take(message, lsn, batch)
    records = [each for each in batch if isinstance(each, SourceRecord)]
    return [shown(each) for each in records], [each.position for each in records]


def shown(record: SourceRecord) -> tuple[Any, ...]:
    value = record.value
    if value is None:
        return ("tombstone",)
    if record.topic == "t.transaction":
        assert record.key == {"id": value["id"]}
        return (value["status"], value["id"], value["event_count"], value["data_collections"], value["ts_ms"])
    return (value["op"], *(value["transaction"] or {}).values())


def test_transactions_are_told_of_and_their_changes_counted() -> None:
    records, positions = told({"lsn": 50})
    counts = [
        {"data_collection": "public.items", "event_count": 6},
        {"data_collection": "public.more", "event_count": 3},
    ]
    assert records == [
        ("BEGIN", "5:0", None, None, 1),
        ("c", "5:1", 1, 1),
        ("d", "5:3", 2, 2),
        ("tombstone",),
        ("c", "5:3", 3, 3),
        ("u", "5:4", 4, 4),
        ("c", "5:5", 5, 1),
        ("t", "5:6", 6, 2),
        ("t", "5:6", 7, 5),
        ("d", "5:7", 8, 6),
        ("tombstone",),
        ("c", "5:8", 9, 3),
        ("END", "5:9", 9, counts, 1),
        ("BEGIN", "6:10", None, None, 2),
        ("END", "6:12", 0, [], 2),
    ]
    assert positions[0] == {"lsn": 50, "transaction": 100, "events": 0, "begun": True}
    assert positions[-1] == {"lsn": 210, "commit": 210}


def test_transactions_are_told_of_once_and_counted_on_from_wherever_it_goes_on() -> None:
    records, positions = told({"lsn": 50})
    for done, position in enumerate(positions, 1):
        if position is not None and position["lsn"] == 50:
            assert told(position)[0] == records[done:], position
    records, positions = told({"lsn": 50}, skipped=frozenset({"t", "c"}), listener=Listening("public.else", []))
    assert [each[:1] for each in records[:3]] == [("BEGIN",), ("d",), ("tombstone",)]
    for done, position in enumerate(positions, 1):
        if position is not None and position["lsn"] == 50:
            assert told(position, skipped=frozenset({"t", "c"}))[0] == records[done:], position


def test_the_begin_of_a_transaction_that_was_not_told_of_is_made_up_for() -> None:
    """The setting came while a transaction was half done: its position does not go back."""
    _, silent = told({"lsn": 50}, silent=True)
    records, positions = told(silent[0])
    assert records[:2] == [("BEGIN", "5:0", None, None, 1), ("d", "5:3", 2, 2)]
    assert positions[0] == {"lsn": 50, "transaction": 100, "events": 1, "begun": True}


def test_a_table_that_is_listened_to_has_no_records_and_what_is_done_is_not_heard_again() -> None:
    everything: list[tuple[int, str]] = []
    heard: list[tuple[int, str]] = []
    records, _ = told({"lsn": 50}, listener=Listening("public.more", everything))
    kinds = [each[0] for each in records]
    assert kinds == ["BEGIN", "c", "d", "tombstone", "c", "u", "t", "d", "tombstone", "END", "BEGIN", "END"]
    half_done = {"lsn": 50, "transaction": 100, "events": 5, "begun": True}
    told(half_done, listener=Listening("public.more", heard))
    assert everything[:4] == [(7, "Insert"), (7, "Update"), (7, "Update"), (9, "Insert")]
    assert heard == everything[4:] == [(9, "Truncate"), (7, "Truncate"), (7, "Delete"), (9, "Insert")]
