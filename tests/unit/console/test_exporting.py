"""Files of records."""

import csv
import io
import json
import sys
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from tests.unit.console.messages import Sent

from ottla.console.access.masks import MASKED, parse_masks
from ottla.console.downloads import GAP, runs
from ottla.console.exporting import FORMATS, PIECE_BYTES, NoParquet, defused, writer
from ottla.console.expressions import compile_columns
from ottla.console.sight import Record, Sight
from ottla.console.values import LARGEST_TEXT_BYTES

SENT = [
    Sent(b"=cmd()", b'{"a": {"b": -1.5}, "c": "@x"}', (("source", b"web"),)),
    Sent(None, b"\xff\xfe", (), -(2**62), 8),
    Sent(b"", None, (), 1_767_225_600_001, 9),
    Sent(b"-5", b'a,"b"\n\xe2\x82\xac', (), 1_767_225_600_002, 10),
]


def records(sight: Sight | None = None) -> Iterator[Record]:
    return map((sight or Sight()).record, SENT)


def written(kind: str, columns: str = "", sight: Sight | None = None) -> bytes:
    chosen = compile_columns(columns) if columns else ()
    return b"".join(writer(kind, chosen).pieces(records(sight)))


def test_csv_is_read_back_and_no_cell_is_a_formula() -> None:
    rows = list(csv.reader(io.StringIO(written("csv").decode(), newline="")))
    assert rows[0] == ["time", "partition", "offset", "key", "value", "headers"]
    assert rows[1][3:] == ["'=cmd()", '{"a": {"b": -1.5}, "c": "@x"}', '[["source", "web"]]']
    assert rows[2] == [str(-(2**62)), "2", "8", "", "//4=", ""]
    assert rows[3] == ["2026-01-01T00:00:00.001Z", "2", "9", "", "", ""]
    assert rows[4][3:5] == ["-5", 'a,"b"\n€']


def test_chosen_columns_take_the_place_of_keys_and_values() -> None:
    rows = list(csv.reader(io.StringIO(written("csv", "value.a.b, value.c, headers.source").decode(), newline="")))
    assert rows[:2] == [
        ["time", "partition", "offset", "value.a.b", "value.c", "headers.source"],
        ["2026-01-01T00:00:00.000Z", "2", "7", "-1.5", "'@x", "web"],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@sum", "\t=1", "\r=1", "-1+1", "=-1"])
def test_formulas_are_defused(text: str) -> None:
    assert defused(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=1", "-1", "+1.5e3", "12"])
def test_other_texts_stay(text: str) -> None:
    assert defused(text) == text


def test_json_lines_keep_values_as_they_are() -> None:
    rows = [json.loads(line) for line in written("jsonl").splitlines()]
    assert [row["key"] for row in rows] == ["=cmd()", None, "", "-5"]
    assert [row["value"] for row in rows] == [{"a": {"b": -1.5}, "c": "@x"}, {"base64": "//4="}, None, 'a,"b"\n€']
    assert json.loads(written("jsonl", "value.a").splitlines()[0])["value.a"] == {"b": -1.5}


def test_json_lines_are_json_whatever_the_values_are() -> None:
    odd = Sight().record(Sent(b"k", b'{"a": [NaN, -Infinity, 1]}'))
    (line,) = writer("jsonl", ()).pieces(iter([odd]))
    assert json.loads(line, parse_constant=pytest.fail)["value"] == {"a": ["nan", "-inf", 1]}


def test_parquet_has_times_numbers_and_texts() -> None:
    table = pq.read_table(io.BytesIO(written("parquet")))
    assert table.column_names == ["time", "partition", "offset", "key", "value", "headers"]
    assert table["offset"].to_pylist() == [7, 8, 9, 10]
    assert table["value"].to_pylist()[1:3] == ["//4=", None]
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"


def test_what_is_masked_is_in_no_file() -> None:
    sight = Sight(masks=parse_masks(["value.c", "key", "headers.source"]))
    for kind in ("csv", "jsonl", "parquet"):
        data = written(kind, sight=sight)
        for secret in (b"cmd", b"@x", b"web"):
            assert secret not in data
    assert MASKED in written("jsonl", "value.c", sight).decode()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_large_file_comes_in_pieces(kind: str) -> None:
    large = (Sight().record(Sent(b"k", b"x" * 100_000)) for _ in range(200))
    pieces = list(writer(kind, ()).pieces(large))
    assert len(pieces) > 2
    if kind != "parquet":
        assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize("kind", FORMATS)
def test_a_text_of_which_filters_see_a_part_is_exported_whole(kind: str) -> None:
    large = Sight().record(Sent(b"k", b"x" * (LARGEST_TEXT_BYTES + 3)))
    assert len(large.value) == LARGEST_TEXT_BYTES
    data = b"".join(writer(kind, ()).pieces(iter([large])))
    if kind == "parquet":
        data = pq.read_table(io.BytesIO(data))["value"][0].as_py().encode()
    assert data.count(b"x") >= LARGEST_TEXT_BYTES + 3


def test_parquet_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["ottla.console.exporting"], "find_spec", lambda name: None)
    with pytest.raises(NoParquet, match="pyarrow"):
        writer("parquet", ())


def test_places_are_read_in_runs() -> None:
    assert list(runs({(0, 5), (0, 7), (1, 6), (0, 8 + GAP)})) == [{0: (5, 8)}, {0: (8 + GAP, 9 + GAP)}, {1: (6, 7)}]
    assert list(runs(set())) == []
