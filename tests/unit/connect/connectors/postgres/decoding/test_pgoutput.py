"""Messages byte by byte, as PostgreSQL's documentation draws them."""

import struct

import pytest

from ottla.connect.connectors.postgres.decoding.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    UndecodableError,
    Update,
    decode,
)

Y2000_US = 946_684_800_000_000


def values(*texts: str | None) -> bytes:
    parts = [struct.pack(">H", len(texts))]
    for text in texts:
        if text is None:
            parts.append(b"n")
        elif text == "unchanged":
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(text.encode())) + text.encode())
    return b"".join(parts)


def test_a_transaction_begins_and_ends() -> None:
    assert decode(b"B" + struct.pack(">QqI", 0x16B374D848, 1_000_000, 77)) == Begin(
        0x16B374D848, Y2000_US + 1_000_000, 77
    )
    assert decode(b"C\x00" + struct.pack(">QQq", 5, 9, -1)) == Commit(5, 9, Y2000_US - 1)


def test_a_relation_says_its_columns() -> None:
    column = b"\x01id\x00" + struct.pack(">Ii", 23, -1)
    other = b"\x00na\xc3\xafve\x00" + struct.pack(">Ii", 1043, 14)
    data = b"R" + struct.pack(">I", 16384) + b"public\x00items\x00d" + struct.pack(">H", 2) + column + other
    columns = (RelationColumn("id", 23, -1, True), RelationColumn("naïve", 1043, 14, False))
    assert decode(data) == Relation(16384, "public", "items", "d", columns)


def test_rows_come_as_texts_nulls_and_unchanged() -> None:
    head = struct.pack(">I", 7)
    new = values("1", None, "unchanged", "é")
    assert decode(b"I" + head + b"N" + new) == Insert(7, ["1", None, UNCHANGED, "é"])
    assert decode(b"U" + head + b"N" + new) == Update(7, None, False, ["1", None, UNCHANGED, "é"])
    assert decode(b"U" + head + b"K" + values("0", None) + b"N" + values("1", "x")) == Update(
        7, ["0", None], False, ["1", "x"]
    )
    assert decode(b"U" + head + b"O" + values("0", "w") + b"N" + values("1", "x")) == Update(
        7, ["0", "w"], True, ["1", "x"]
    )
    assert decode(b"D" + head + b"K" + values("1", None)) == Delete(7, ["1", None], False)
    assert decode(b"D" + head + b"O" + values("1", "")) == Delete(7, ["1", ""], True)


def test_the_rarer_ones() -> None:
    assert decode(b"T" + struct.pack(">IBII", 2, 3, 7, 8)) == Truncate((7, 8), True, True)
    assert decode(b"Y" + struct.pack(">I", 99) + b"public\x00mood\x00") == TypeName(99, "public", "mood")
    assert decode(b"O" + struct.pack(">Q", 1) + b"other\x00") == Origin("other")
    message = b"M\x01" + struct.pack(">Q", 5) + b"mark\x00" + struct.pack(">I", 2) + b"\x00\xff"
    assert decode(message) == LogicalMessage(True, 5, "mark", b"\x00\xff")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"B\x00",
        b"I\x00\x00\x00\x07N\x00\x01t\x00\x00\x00\x09x",
        b"I\x00\x00\x00\x07N\x00\x01b\x00\x00\x00\x01x",
        b"I\x00\x00\x00\x07N\x00\x02n",
        b"R\x00\x00\x00\x07public",
    ],
)
def test_what_is_cut_off_or_unknown_is_no_message(data: bytes) -> None:
    with pytest.raises(UndecodableError, match="cannot be read"):
        decode(data)
