"""Golden files: how they are found, read and compared."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.golden import GoldenError, Line, as_line, cases_of, compare, newest_by_key, read_lines, to_text


def test_cases_are_directories_beside_the_job(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "delays.py"
    first = tmp_path / "jobs" / "tests" / "flight-delays" / "a-first"
    second = first.with_name("b-second")
    for directory in (second, first):
        directory.mkdir(parents=True)
    (first.parent / "notes.txt").touch()
    for name in ("input.flights.jsonl", "input.v1.airlines.jsonl", "expected.delays.jsonl", "input.jsonl", "x.jsonl"):
        (first / name).touch()

    cases = cases_of(job, "flight-delays")

    assert [case.name for case in cases] == ["a-first", "b-second"]
    assert cases[0].inputs() == {
        "flights": first / "input.flights.jsonl",
        "v1.airlines": first / "input.v1.airlines.jsonl",
    }
    assert cases[0].expected() == {"delays": cases[0].expected_file("delays")}
    with pytest.raises(GoldenError, match=r"tests/other has no case: make a directory"):
        cases_of(job, "other")


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ((b"k", b'{"n": 1}'), {"key": "k", "value": {"n": 1}}),
        ((b'{"n":1}', b"[1]"), {"key": '{"n":1}', "value": [1]}),
        ((None, b"17"), {"key": None, "value": "17"}),
        ((b"k", None), {"key": "k", "value": None}),
        ((b"\xff", b"\xfe"), {"key_base64": "/w==", "value_base64": "/g=="}),
    ],
)
def test_records_as_lines(record: tuple[bytes | None, bytes | None], line: Line) -> None:
    assert as_line(*record) == line


def test_headers_stand_in_a_line_if_there_are_any() -> None:
    line = as_line(b"k", b"v", [("a", b"1"), ("b", None), ("c", b"\xff")])
    assert line["headers"] == [["a", "1"], ["b", None], ["c", {"base64": "/w=="}]]


def test_files_are_read_with_what_is_wrong_in_them(tmp_path: Path) -> None:
    file = tmp_path / "expected.delays.jsonl"
    file.write_text('{"key": "k", "value": "ä"}\n\n{"key": "l"}\n')
    assert read_lines(file) == [{"key": "k", "value": "ä"}, {"key": "l"}]
    file.write_text('{"key": "k"}\n{\n')
    with pytest.raises(GoldenError, match=r"expected.delays.jsonl, line 2: no JSON: "):
        read_lines(file)
    file.write_text("[1]\n")
    with pytest.raises(GoldenError, match=r"line 1: no object such as"):
        read_lines(file)


def test_the_newest_of_each_key() -> None:
    records = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (None, b"x"), (None, b"x"), (b"c", b"1")]
    assert newest_by_key([as_line(*record) for record in records]) == [
        as_line(b"a", b"2"),
        as_line(None, b"x"),
        as_line(None, b"x"),
        as_line(b"c", b"1"),
    ]


def test_a_difference_is_told_by_field() -> None:
    expected = [
        {"key": "UA", "value": {"late": 4, "day": "Mon", "gate": 7}},
        {"key": "AA", "value": {"late": 1}},
        {"key": "DL", "value": {"late": 2}},
    ]
    found: list[dict[str, Any]] = [
        {"key": "DL", "value": {"late": 2}},
        {"key": "UA", "value": {"day": "Mon", "late": 3, "seat": None}},
        {"key": "B6", "value": "soon"},
    ]

    comparison = compare("delays", expected, found)

    assert not comparison.is_equal
    assert comparison.matching == 1
    assert comparison.describe() == [
        '~ {"key": "UA", "value": {"day": "Mon", "late": 3, "seat": null}}',
        "    late: 3, expected 4",
        "    gate: absent, expected 7",
        "    seat: null, expected absent",
        '- {"key": "AA", "value": {"late": 1}}',
        '+ {"key": "B6", "value": "soon"}',
    ]


def test_a_long_difference_is_cut() -> None:
    texts = compare("delays", [], [{"key": str(number), "value": 1} for number in range(100)]).describe()
    assert len(texts) == 21
    assert texts[-1] == "... and 80 more lines"


def test_headers_count_where_they_are_expected() -> None:
    found = [{"key": "k", "value": "v", "headers": [["a", "1"]]}, {"key": "k", "value": "v", "headers": [["a", "2"]]}]
    bare = {"key": "k", "value": "v"}
    assert compare("delays", [bare, found[1]], found).is_equal
    assert compare("delays", [found[1], bare], found).is_equal
    assert not compare("delays", [found[1], found[1]], found).is_equal
    assert not compare("delays", [bare], found).is_equal
    assert not compare("delays", [bare] * 3, found).is_equal


lines = st.lists(
    st.builds(
        lambda key, value: as_line(key, value),
        st.sampled_from([b"a", b"b", None]),
        st.sampled_from([b"1", b'{"x": 1, "y": 2}', b'{"y": 2, "x": 1}', b"text", None]),
    ),
    max_size=8,
)


@given(lines, st.randoms())
def test_what_is_written_is_what_is_expected_in_any_order(found: list[Line], chance: random.Random) -> None:
    shuffled = chance.sample(found, len(found))
    assert compare("o", found, shuffled).is_equal
    assert to_text(found) == to_text(shuffled)


@given(lines, lines)
def test_every_line_is_accounted_for(expected: list[Line], found: list[Line]) -> None:
    comparison = compare("o", expected, found)
    assert comparison.matching + len(comparison.missing) + len(comparison.changed) == len(expected)
    assert comparison.matching + len(comparison.unexpected) + len(comparison.changed) == len(found)
    assert comparison.is_equal == (sorted(map(repr, map(norm, expected))) == sorted(map(repr, map(norm, found))))


def norm(line: Line) -> list[tuple[str, object]]:
    value = line["value"]
    return [("key", line["key"]), ("value", sorted(value.items()) if isinstance(value, dict) else value)]
