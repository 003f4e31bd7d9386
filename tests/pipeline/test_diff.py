"""What two outputs are found to differ in."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.cli.pipeline.diff_report import DiffReport
from ottla.pipeline import diff
from ottla.pipeline.diff import Difference, DiffError, Example, Keys, Selection

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
        keys=Keys(1, 2, 1, 1),
        columns={"value": 1},
        examples=[
            Example("AA", ['{"key":"AA","value":"1"}'], []),
            Example("B6", ['{"key":"B6","value":"9"}'], []),
            Example("DL", ['{"key":"DL","value":"5"}'], ['{"key":"DL","value":"6"}'], ["value"]),
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
    keyed = diff.compare(diff.rows(a, Selection(key)), diff.rows(b, Selection(key)), 1)
    assert (keyed.equal, keyed.only_in_a, keyed.only_in_b, keyed.differing) == (1, 1, 1, 1)
    assert keyed.examples == [
        Example(
            '{"day":"Mon","carrier":"AA"}',
            ['{"carrier":"AA","day":"Mon","late":null}'],
            ['{"carrier":"AA","day":"Mon","late":0.0}'],
            ["late"],
        )
    ]
    with pytest.raises(DiffError, match="no column 'airline'; there are day, carrier, late"):
        diff.rows(a, Selection(["airline"]))


def test_nothing_equals_nothing(spark: SparkSession) -> None:
    empty = topic(spark)
    assert compare(empty, empty, newest=True) == Difference(0, 0, 0, 0, Keys(0, 0, 0, 0), {}, [])


ORDERS_A = [
    b'{"order": 1, "price": 10.0, "tier": "gold", "at": 5}',
    b'{"order": 2, "price": 20.0, "tier": "gold", "at": 5}',
    b'{"order": 3, "price": 30.0, "tier": "gold", "at": 5}',
    b'{"order": 3, "price": 30.0, "tier": "gold", "at": 5}',
]
ORDERS_B = [
    b'{"at": 6, "order": 1, "price": 10.0000001, "tier": "gold"}',
    b'{"at": 6, "order": 2, "price": 20.0, "tier": "silver"}',
    b'{"at": 6, "order": 3, "price": 30.0, "tier": "gold"}',
    b'{"at": 6, "order": 4, "price": 40.0, "tier": "gold"}',
]


def orders(spark: SparkSession, values: list[bytes], selection: Selection) -> DataFrame:
    """All of one customer: the key says nothing of the order."""
    return diff.records(topic(spark, *((b"customer 1", value) for value in values)), newest=False, selection=selection)


def test_records_are_compared_by_any_field_with_a_tolerance(spark: SparkSession) -> None:
    selection = Selection(key=["order"], ignored=["at"])
    a, b = orders(spark, ORDERS_A, selection), orders(spark, ORDERS_B, selection)
    found = diff.compare(a, b, 10, tolerance=0.001)
    assert (found.equal, found.only_in_a, found.only_in_b, found.differing) == (2, 1, 1, 1)
    assert found.keys == Keys(equal=1, only_in_a=0, only_in_b=1, differing=2)
    assert found.columns == {"tier": 1}
    assert [(each.key, each.columns) for each in found.examples] == [
        ('{"order":2}', ["tier"]),
        ('{"order":3}', []),
        ('{"order":4}', []),
    ]
    assert diff.compare(a, b, 0).columns == {"price": 1, "tier": 1}


TYPED = [
    (b'{"a": 1, "b": true}', b'{"a": "1", "b": true}'),
    (b'{"a": {"x": 1}, "b": 0}', b'{"a": "{\\"x\\":1}", "b": 0}'),
    (b'{"a": null, "b": 0}', b'{"a": "null", "b": 0}'),
    (b'{"a": null, "b": 0}', b'{"b": 0}'),
    (b'{"a": 9007199254740993}', b'{"a": 9007199254740992}'),
]


@pytest.mark.parametrize("selection", [diff.EVERYTHING, Selection(ignored=["c"])], ids=["whole", "by column"])
def test_a_value_of_another_type_differs(
    spark: SparkSession, selection: Selection, capsys: pytest.CaptureFixture[str]
) -> None:
    same = b'{"c": 0, "a": "\\u00e9\\""}', '{"a":"\u00e9\\"","c":0}'.encode()
    a, b = (
        diff.records(
            topic(spark, *((str(number).encode(), pair[side]) for number, pair in enumerate([*TYPED, same]))),
            newest=False,
            selection=selection,
        )
        for side in (0, 1)
    )
    found = diff.compare(a, b, 10, tolerance=0.5)
    assert (found.equal, found.differing, found.columns) == (2, 4, {"a": 4})  # the last are numbers, and near enough
    assert diff.compare(a, b, 0).differing == 5
    DiffReport("x", "y", {"orders": found}).show()
    assert '  a: 1 | "1"\n' in capsys.readouterr().out
    assert DiffReport("x", "y", {"orders": found}).html().count("(missing)") == 1


def test_a_column_of_another_type_differs(spark: SparkSession) -> None:
    whole, text = (
        diff.rows(spark.createDataFrame([(value, "k")], f"n {kind}, k STRING"), Selection(["k"]))
        for value, kind in ((1, "INT"), ("1", "STRING"))
    )
    found = diff.compare(whole, text, 0)
    assert (found.differing, found.columns) == (1, {"n": 1})


def test_only_chosen_columns_are_compared(spark: SparkSession) -> None:
    selection = Selection(key=["order"], only=["tier"])
    found = diff.compare(orders(spark, ORDERS_A, selection), orders(spark, ORDERS_B, selection), 0)
    assert (found.equal, found.differing, found.columns) == (2, 1, {"tier": 1})
    with pytest.raises(DiffError, match="no record has a field 'ordre'; there are at, order, price, tier"):
        orders(spark, ORDERS_A, Selection(key=["ordre"]))


def test_records_whose_values_are_no_objects_have_one_field(spark: SparkSession) -> None:
    selection = Selection(ignored=["at"])
    a, b = orders(spark, [b"x", b"y"], Selection()), orders(spark, [b"x", b"z"], Selection())
    assert diff.compare(a, b, 0).columns == {"value": 1}
    a = orders(spark, [b"x", *ORDERS_A], selection)
    assert diff.compare(a, a, 0).is_equal


def test_a_report_shows_what_differs_side_by_side(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    selection = Selection(key=["order"], ignored=["at"])
    a, b = orders(spark, ORDERS_A, selection), orders(spark, ORDERS_B, selection)
    report = DiffReport("shop", "<v2>", {"orders": diff.compare(a, b, 10, tolerance=0.001)})
    report.show()
    shown = capsys.readouterr()
    assert "orders\t2\t1\t1\t4\t1" in shown.out
    assert "  tier: differs in 1 row\n" in shown.out
    assert '{"order":2}\n  tier: "gold" | "silver"\n' in shown.out
    assert '- {"order":3,"price":30.0,"tier":"gold"}\n' in shown.out
    assert shown.err == "1 of 1 output differ\n"
    page = report.html()
    assert '<td class="a">&quot;gold&quot;</td><td class="b">&quot;silver&quot;</td>' in page
    assert "<h1>shop and &lt;v2&gt;</h1>" in page
