"""What two outputs are found to differ in."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline import diff
from ottla.pipeline.diff import Difference, DiffError, Example

RECORD = "key BINARY, value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"


def topic(spark: SparkSession, *records: tuple[bytes | None, bytes | None]) -> DataFrame:
    rows = [(key, value, 0, offset, None) for offset, (key, value) in enumerate(records)]
    return spark.createDataFrame(rows, RECORD)


def compare(a: DataFrame, b: DataFrame, *, newest: bool, limit: int = 10) -> Difference:
    return diff.compare(diff.records(a, newest=newest), diff.records(b, newest=newest), limit)


def test_an_updated_topic_is_the_newest_of_each_key(spark: SparkSession) -> None:
    a = topic(spark, (b"UA", b"1"), (b"UA", b"2"), (b"AA", b"1"), (b"DL", b"5"), (b"B6", b"9"))
    b = topic(spark, (b"UA", b"2"), (b"DL", b"5"), (b"DL", b"6"), (b"WN", b"1"), (b"B6", b"9"), (b"B6", None))
    found = compare(a, b, newest=True)
    assert found == Difference(
        equal=1,
        only_in_a=2,
        only_in_b=1,
        differing=1,
        examples=[
            Example("AA", ['{"key":"AA","value":"1"}'], []),
            Example("B6", ['{"key":"B6","value":"9"}'], []),
            Example("DL", ['{"key":"DL","value":"5"}'], ['{"key":"DL","value":"6"}']),
            Example("WN", [], ['{"key":"WN","value":"1"}']),
        ],
    )
    assert not found.is_equal


def test_an_appended_topic_is_all_its_records_in_any_order(spark: SparkSession) -> None:
    a = topic(spark, (b"k", b"1"), (b"k", b"2"), (b"k", b"2"), (None, b"x"), (None, b"x"), (b"\xff", None))
    b = topic(spark, (None, b"x"), (b"k", b"2"), (b"k", b"1"), (b"k", b"2"), (b"\xff", None))
    found = compare(a, b, newest=False)
    assert (found.equal, found.only_in_a, found.only_in_b, found.differing) == (5, 1, 0, 0)
    assert found.examples[0].in_a == ['{"key":null,"value":"x"}']
    assert compare(a, a, newest=False).is_equal
    assert compare(b, a, newest=False, limit=0).examples == []


def test_tables_are_compared_by_all_columns_or_by_a_key(spark: SparkSession) -> None:
    schema = "day STRING, carrier STRING, late DOUBLE"
    a = spark.createDataFrame([("Mon", "UA", 1.0), ("Mon", "AA", None), ("Tue", "UA", 2.0)], schema)
    b = spark.createDataFrame([("Mon", "UA", 1.0), ("Mon", "AA", 0.0), ("Wed", "UA", 2.0)], schema).select(
        "late", "day", "carrier"
    )

    whole = diff.compare(diff.rows(a), diff.rows(b), 10)
    assert (whole.equal, whole.only_in_a, whole.only_in_b, whole.differing) == (1, 2, 2, 0)

    key = ("day", "carrier")
    keyed = diff.compare(diff.rows(a, key), diff.rows(b, key), 1)
    assert (keyed.equal, keyed.only_in_a, keyed.only_in_b, keyed.differing) == (1, 1, 1, 1)
    assert keyed.examples == [
        Example(
            '{"day":"Mon","carrier":"AA"}',
            ['{"carrier":"AA","day":"Mon","late":null}'],
            ['{"carrier":"AA","day":"Mon","late":0.0}'],
        )
    ]
    with pytest.raises(DiffError, match="no column 'airline'; there are day, carrier, late"):
        diff.rows(a, ["airline"])


def test_nothing_equals_nothing(spark: SparkSession) -> None:
    empty = topic(spark)
    assert compare(empty, empty, newest=True) == Difference(0, 0, 0, 0, [])
