"""Marks of a snapshot's records, as Debezium sets them, whatever the size of batches."""

from collections.abc import Iterator

import pytest

from ottla.connect.api import SourceRecord
from ottla.connect.connectors.capture.snapshots import mark, nothing_fits, table_batches, without_last

SHARED = {"snapshot": "true"}


def records(count: int) -> list[SourceRecord]:
    return [SourceRecord(topic="t", value={"source": SHARED, "id": number}) for number in range(count)]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_first_and_the_last_of_a_table_and_of_all_are_marked(most: int) -> None:
    def batches() -> Iterator[list[SourceRecord]]:
        for number, count in enumerate((3, 0, 1, 2)):
            done = yield from table_batches(records(count), most, first=number == 0)
            assert done == count

    found: list[SourceRecord] = []

    def everything() -> Iterator[list[SourceRecord]]:
        last = yield from without_last(batches())
        assert last is not None
        mark(last, "last")
        yield [last]

    for batch in everything():
        assert 0 < len(batch) <= most + 1
        found += batch
    assert [each.value["source"]["snapshot"] for each in found] == [
        "first", "true", "last_in_data_collection", "last_in_data_collection", "first_in_data_collection", "last",
    ]  # fmt: skip
    assert SHARED == {"snapshot": "true"}


def test_a_list_that_fits_nothing_is_told_of_with_the_nearest_name() -> None:
    names = ["public.orders", "public.items"]
    assert "is it public.orders?" in str(nothing_fits([r"public\.ordres"], names, "database d", "schema.table"))
    said = str(nothing_fits(["zzz"], names, "the server", "database.table"))
    assert said.endswith("fits no table of the server, or none that exists yet: names are database.table")
