"""Conditions by which a table is read in chunks, and keys in positions."""

import json
from decimal import Decimal

from ottla.connect.connectors.mysql.decoding.keys import KeyColumn, first_after, from_json, in_json, key_of


def column(name: str, kind: str = "int", index: int = 0) -> KeyColumn:
    return KeyColumn(name, index, kind, str)


def test_the_condition_begins_with_what_an_index_can_use() -> None:
    columns = [column("a"), column("b"), column("c")]
    condition, parameters = first_after(columns[:2], (1, 2), (8, 9))
    assert condition == "`a` >= %s AND (`a` > %s OR (`b` > %s)) AND `a` <= %s AND (`a` < %s OR (`b` <= %s))"
    assert parameters == [1, 1, 2, 8, 8, 9]
    condition, parameters = first_after(columns, None, (7, 8, 9))
    assert condition == "`a` <= %s AND (`a` < %s OR (`b` <= %s AND (`b` < %s OR (`c` <= %s))))"
    assert parameters == [7, 7, 8, 8, 9]


def test_labels_are_compared_by_their_numbers_as_they_are_ordered() -> None:
    assert first_after([column("a", "enum")], (1,), (2,))[0] == "(`a` + 0) > %s AND (`a` + 0) <= %s"
    assert column("a", "enum").selected == "(`a` + 0)"
    assert column("a", "timestamp").selected == "CAST(`a` AS CHAR)"


def test_names_may_have_any_characters() -> None:
    assert first_after([column("50%` of")], None, (1,)) == ("`50%%`` of` <= %s", [1])


def test_keys_are_json_in_positions() -> None:
    key = (1, "é", b"\x00\xff", Decimal("-1.50"))
    assert from_json(tuple(json.loads(json.dumps(in_json(key))))) == key


def test_keys_are_found_by_names() -> None:
    assert key_of([column("b"), column("a")], ["a", "x", "b"], [1, 2, 3]) == ("3", "1")
    assert key_of([column("a")], ["a"], [None]) == (None,), "a date that no calendar has"
