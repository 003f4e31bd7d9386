"""Transaction metadata, whatever the database."""

from ottla.connect.api import SourceRecord
from ottla.connect.connectors.capture.transactions import KEY, VALUE, Transactions


def change() -> SourceRecord:
    return SourceRecord(topic="t", value={"op": "c", "transaction": None})


def test_changes_are_counted_by_transaction_and_by_table_and_tombstones_are_not() -> None:
    transactions = Transactions("shop.transaction")
    transactions.reset()
    records = [change(), SourceRecord(topic="t", value=None), change(), change()]
    transactions.mark(records[:3], "db.a", "1")
    transactions.mark(records[3:], "db.b", "2")
    blocks = [each.value and tuple(each.value["transaction"].values()) for each in records]
    assert blocks == [("1", 1, 1), None, ("1", 2, 2), ("2", 3, 1)]
    ended = transactions.ended("3", 9)
    assert (ended.topic, ended.key, ended.value["status"]) == ("shop.transaction", {"id": "3"}, "END")
    assert ended.value["event_count"] == 3
    assert ended.value["data_collections"] == [
        {"data_collection": "db.a", "event_count": 2},
        {"data_collection": "db.b", "event_count": 1},
    ]
    transactions.reset()
    assert transactions.ended("4", 9).value["event_count"] == 0


def test_a_begin_has_no_counts_and_both_have_the_same_schemas() -> None:
    transactions = Transactions("shop.transaction")
    began, ended = transactions.began("1", 8), transactions.ended("1", 9)
    assert began.value == {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 8}
    for each in (began, ended):
        assert (each.key_schema, each.value_schema) == (KEY, VALUE)
        assert list(each.value) == [field.name for field in VALUE.fields]
