"""Events of the binlog as records with positions."""

from typing import Any

import pytest

from ottla.connect.api import BadRecord, Progress, SourceRecord
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.capture.transactions import Transactions
from ottla.connect.connectors.mysql.decoding.changes import SOURCE, Changes, RowChange
from ottla.connect.connectors.mysql.decoding.place import Origin
from ottla.connect.connectors.mysql.decoding.table_map import TableMap
from ottla.connect.connectors.mysql.gtids import add_mariadb_gtid, add_mysql_gtid, end_of_binlog
from ottla.connect.schema import INT64

COLUMNS = [Column("id", 0, INT64, int)]
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def changes(
    position: dict[str, Any],
    transactions: Transactions | None = None,
    skipped: frozenset[str] = frozenset(),
    warned: list[str] | None = None,
    kind: str = "mariadb",
    reject: Any = None,
) -> Changes:
    table = TableEvents("t.db.items", COLUMNS, ["id"], SOURCE["mariadb"], unchanged=object())

    def describe(described: TableMap) -> TableEvents | None:
        return table if described.table == "items" else None

    warn = (warned if warned is not None else []).append
    origin = Origin(kind, "t", add_mariadb_gtid if kind == "mariadb" else add_mysql_gtid, "-1-")
    return Changes(origin, position, describe, Rules(lambda: 1, skipped, transactions, reject), warn)


def inserted(table: str, *keys: int) -> RowChange:
    return RowChange(TableMap("db", table), [(None, [key]) for key in keys], 1, 1, 7)


def transaction(made: Changes, gtid: str, *events: RowChange, end: int) -> list[SourceRecord | Progress]:
    batch: list[SourceRecord | Progress] = []
    made.numbered(gtid)
    made.began(1, batch)
    for event in events:
        made.change(event, 0, batch)
    made.committed(end, 2, batch)
    return batch


def test_the_last_record_of_a_transaction_has_its_end() -> None:
    made = changes({"file": "b.1", "pos": 4, "gtids": ""})
    batch = transaction(made, "0-1-7", inserted("items", 1, 2), inserted("items", 3), end=99)
    assert [each.position for each in batch] == [
        {"file": "b.1", "pos": 4, "gtids": "", "events": 1, "transaction": "0-1-7"},
        {"file": "b.1", "pos": 4, "gtids": "", "events": 2, "transaction": "0-1-7"},
        {"file": "b.1", "pos": 99, "gtids": "0-1-7"},
    ]
    made.rotated("b.2", 4)
    assert transaction(made, "1-1-1", inserted("other", 1), end=50) == [
        Progress(position={"file": "b.2", "pos": 50, "gtids": "0-1-7,1-1-1"})
    ]


def test_rows_that_are_done_are_passed_over() -> None:
    made = changes({"file": "b.1", "pos": 4, "events": 3})
    batch = transaction(made, "0-1-7", inserted("items", 1, 2), inserted("other", 8), inserted("items", 3), end=99)
    assert [each.key for each in batch if isinstance(each, SourceRecord)] == [{"id": 3}]
    assert [each.key for each in transaction(made, "0-1-8", inserted("items", 4), end=120)] == [{"id": 4}]  # type: ignore[union-attr]


def test_sets_of_gtids_grow() -> None:
    assert add_mariadb_gtid("", "0-1-5") == "0-1-5"
    assert add_mariadb_gtid("0-1-5,2-1-3", "0-2-6") == "0-2-6,2-1-3"
    assert add_mysql_gtid("", f"{UUID}:1") == f"{UUID}:1"
    assert add_mysql_gtid(f"{UUID}:1-4", f"{UUID}:5") == f"{UUID}:1-5"


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {}), ({"gtids": ""}, {"gtids": f"{UUID}:9"}), ({"gtids": f"{UUID}:1-8"}, {"gtids": f"{UUID}:1-9"})],
)
def test_a_position_has_gtids_only_if_they_are_all(before: dict[str, Any], after: dict[str, Any]) -> None:
    """MySQL sends again all that are missing in a set: with `uuid:9` alone 1 to 8."""
    made = changes({"file": "b.1", "pos": 4, **before}, kind="mysql")
    (record,) = transaction(made, f"{UUID}:9", inserted("items", 1), end=99)
    assert record.position == {"file": "b.1", "pos": 99, **after}


class Server:
    """A MySQL that is asked where its binlog ends; a cursor of its own, too."""

    def __init__(self, gtids: str, gtid_mode: str) -> None:
        self._answers = {"SHOW MASTER STATUS": ("b.1", 4, "", "", gtids), "SELECT @@GLOBAL.gtid_mode": (gtid_mode,)}
        self._asked = ""

    def cursor(self) -> "Server":
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: str, _parameters: object) -> None:
        self._asked = statement

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [self._answers[self._asked]]


@pytest.mark.parametrize(
    ("gtids", "mode", "known"),
    [
        ("", "OFF", {}),
        (f"{UUID}:1-4", "ON_PERMISSIVE", {}),
        ("", "ON", {"gtids": ""}),
        (f"{UUID}:1-4,\n{UUID[:-1]}3:1", "ON", {"gtids": f"{UUID}:1-4,{UUID[:-1]}3:1"}),
    ],
)
def test_gtids_of_mysql_are_all_if_every_transaction_has_one(gtids: str, mode: str, known: dict[str, str]) -> None:
    assert end_of_binlog(Server(gtids, mode), "mysql") == {"file": "b.1", "pos": 4, **known}


def test_transactions_are_told_and_counted_if_asked_for() -> None:
    position: dict[str, Any] = {"file": "b.1", "pos": 4}
    made = changes(position, Transactions("t.transaction"))
    begin, first, second, end = transaction(made, "0-1-7", inserted("items", 1, 2), end=99)
    assert (begin.value["status"], begin.value["id"], begin.value["ts_ms"]) == ("BEGIN", "0-1-7", 1000)  # type: ignore[union-attr]
    assert first.value["transaction"] == {"id": "0-1-7", "total_order": 1, "data_collection_order": 1}  # type: ignore[union-attr]
    assert second.value["transaction"]["total_order"] == 2  # type: ignore[union-attr]
    assert (end.value["status"], end.value["event_count"], end.value["ts_ms"]) == ("END", 2, 2000)  # type: ignore[union-attr]
    assert begin.position == {"file": "b.1", "pos": 4, "transaction": "0-1-7", "begun": True}
    assert end.position == {"file": "b.1", "pos": 99}
    assert first.position == {"file": "b.1", "pos": 4, "events": 1, "transaction": "0-1-7", "begun": True}
    again = changes(dict(first.position), Transactions("t.transaction"))
    second, end = transaction(again, "0-1-7", inserted("items", 1, 2), end=99)
    assert second.value["transaction"]["total_order"] == 2  # type: ignore[union-attr]
    assert end.value["event_count"] == 2  # type: ignore[union-attr]


def test_a_position_before_a_transaction_that_is_half_done_says_what_is_done() -> None:
    position = {"file": "b.1", "pos": 4, "events": 2, "transaction": "0-1-7", "begun": True}
    made = changes(position)
    assert made.position() == position
    made.numbered("0-1-7")
    assert made.position() == position


def keys(batch: list[SourceRecord | Progress]) -> list[Any]:
    return [each.key["id"] for each in batch if isinstance(each, SourceRecord)]


def test_rows_of_another_transaction_than_the_half_done_one_are_not_passed_over() -> None:
    """After a failover, or a crash without sync_binlog=1, the half-done one may be gone."""
    warned: list[str] = []
    position = {"file": "b.1", "pos": 4, "gtids": "0-1-9", "events": 3, "transaction": "0-1-10", "begun": True}
    made = changes(position, Transactions("t.transaction"), warned=warned)
    begin, *rows, _ = transaction(made, "0-2-10", inserted("items", 1, 2), end=99)
    assert begin.value["status"] == "BEGIN"  # type: ignore[union-attr]
    assert keys(rows) == [1, 2]
    assert made.position() == {"file": "b.1", "pos": 99, "gtids": "0-2-10"}
    (sentence,) = warned
    assert sentence.startswith("transaction 0-1-10, whose first rows (3) were handed on, is no longer in the binlog")


def test_a_transaction_with_the_number_of_a_half_done_one_that_was_lost_comes_whole() -> None:
    """After a crash without sync_binlog=1 a server gives the same numbers again, in a new file."""
    for gtid, rows, count in (("0-1-10", [1, 2, 3], 1), ("0-2-10", [3], 0)):
        warned: list[str] = []
        position = {"file": "b.1", "pos": 4, "gtids": "0-1-9", "events": 2, "transaction": gtid}
        made = changes(position, warned=warned)
        made.rotated("b.2", 4)
        assert made.position() == position
        assert keys(transaction(made, gtid, inserted("items", 1, 2, 3), end=99)) == rows
        assert len(warned) == count
        made = changes(position)
        assert keys(transaction(made, gtid, inserted("items", 1, 2, 3), end=99)) == [3]


def test_a_half_done_transaction_that_another_server_has_further_on_is_gone_on_with_there() -> None:
    warned: list[str] = []
    made = changes({"file": "b.1", "pos": 4, "gtids": "0-1-9", "events": 2, "transaction": "0-1-10"}, warned=warned)
    first, _ = transaction(made, "1-1-6", inserted("items", 8, 9), end=50)
    half_done = {"0-1-10": {"events": 2, "begun": False}}
    assert first.position == {
        "file": "b.1",
        "pos": 4,
        "gtids": "0-1-9",
        "events": 1,
        "transaction": "1-1-6",
        "half_done": half_done,
    }
    again = changes(dict(first.position), warned=warned)
    assert keys(transaction(again, "1-1-6", inserted("items", 8, 9), end=50)) == [9]
    position = again.position()
    assert position["half_done"] == half_done
    assert keys(transaction(changes(position), "0-1-10", inserted("items", 1, 2, 3), end=99)) == [3]
    assert keys(transaction(again, "0-1-10", inserted("items", 1, 2, 3), end=99)) == [3]
    assert again.position() == {"file": "b.1", "pos": 99, "gtids": "0-1-10,1-1-6"}
    assert warned == []


def test_updates_are_left_out_whole_and_deletes_and_creations_also_of_changed_keys() -> None:
    change = RowChange(TableMap("db", "items"), [(["1"], ["2"]), (["2"], ["2"])], 1, 1, 7)
    for skipped, left in (("u", []), ("d", ["c", "u"]), ("c", ["d", None, "u"]), ("t", ["d", None, "c", "u"])):
        made = changes({"file": "b.1", "pos": 4}, skipped=frozenset({skipped}))
        records = [each for each in transaction(made, "0-1-7", change, end=99) if isinstance(each, SourceRecord)]
        assert [each.value and each.value["op"] for each in records] == left, skipped
        assert all(each.value is None or each.value["source"]["pos"] == 7 for each in records)


def test_a_row_that_no_schema_holds_is_rejected_alone() -> None:
    rejected: list[str] = []
    made = changes({"file": "b.1", "pos": 4}, reject=lambda error: rejected.append(str(error)))
    batch: list[SourceRecord | Progress] = []
    made.numbered("0-1-7")
    made.began(1, batch)
    made.change(RowChange(TableMap("db", "items"), [(None, [1]), (None, ["x"]), (None, [3])], 1, 1, 7), 0, batch)
    assert [each.key for each in batch if isinstance(each, SourceRecord)] == [{"id": 1}, {"id": 3}]
    assert [each.position["events"] for each in batch if each.position] == [1, 3]
    assert len(rejected) == 1
    assert rejected[0].startswith("column id of the rows for t.db.items has a value that cannot be read")
    with pytest.raises(BadRecord, match="column id"):
        changes({"file": "b.1", "pos": 4}).change(RowChange(TableMap("db", "items"), [(None, ["x"])], 1, 1, 7), 0, [])


def test_a_position_goes_to_another_file_with_its_identity_and_not_back_in_its_own() -> None:
    start = {"file": "b.1", "pos": 90, "gtids": "", "server": "1", "created": 7}
    made = changes(start)
    made.rotated("b.1", 4)
    made.file_began(7)
    assert made.position() == start
    made.rotated("b.2", 4)
    assert made.position() == start, "until it is known when the file was begun"
    made.file_began(8)
    assert made.position() == start | {"file": "b.2", "pos": 4, "created": 8}
    elsewhere = changes({"file": "b.1", "pos": 90, "gtids": "", "server": "2"})
    assert "created" not in elsewhere.position()
    elsewhere.rotated("b.1", 4)
    elsewhere.file_began(9)
    assert elsewhere.position() == start | {"pos": 4, "server": "2", "created": 9}


def test_a_transaction_that_a_crash_has_cut_off_leaves_the_place_to_the_next_file() -> None:
    made = changes({"file": "b.1", "pos": 4, "server": "1", "created": 7}, kind="mysql")
    made.began(1, [])
    made.change(inserted("items", 1), 50, [])
    made.rotated("b.2", 4)
    made.file_began(8)
    assert made.position() == {"file": "b.1", "pos": 4, "server": "1", "created": 7, "events": 1}
    made.began(1, [])
    batch: list[SourceRecord | Progress] = []
    made.change(inserted("items", 2), 40, batch)
    made.committed(60, 2, batch)
    assert batch[-1].position == {"file": "b.2", "pos": 60, "server": "1", "created": 8}
