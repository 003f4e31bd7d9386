"""What the binlog says of a table is what its changes are read by, whatever became of the table since."""

from collections.abc import Iterator

import pytest

from ottla.connect.api import SourceRecord
from ottla.connect.connectors.mysql.decoding.charsets import MAX_BYTES, decoder
from ottla.connect.connectors.mysql.source import MysqlSource
from tests.connect.shipped.mysql_database import SERVERS, Database, ops, started
from tests.support.connect_tasks import TaskContext, running
from tests.support.mariadb import MariaDb

TIMES = ("-01:00:00.25", "-838:59:59.999999", "-00:00:00.000001", "838:59:59.999999", "-00:59:59.9", "00:00:00")
KINDS = {
    **{f"TIME({fraction})": TIMES for fraction in range(7)},
    "DATETIME(5)": ("0000-01-01 00:00:00.00001", "9999-12-31 23:59:59.99999"),
    "TIMESTAMP(1) NULL": ("1970-01-01 00:00:01", "2038-01-19 03:14:07.9"),
    "YEAR": ("0000", "1901", "2155"),
    "SET('x','y') NOT NULL": ("", "x,y"),
    "SET('x','y')": ("", "y"),
    "ENUM('a','it''s, b')": ("it's, b",),
    "ENUM('ж','€') CHARACTER SET ucs2": ("ж", "€"),
    "ENUM('ж','я') CHARACTER SET koi8r": ("ж", "я"),
    "SET('ж','я') CHARACTER SET utf16": ("ж,я",),
    "TINYINT UNSIGNED": ("255",),
    "MEDIUMINT UNSIGNED": ("16777215",),
    "MEDIUMINT": ("-8388608",),
    "BIGINT UNSIGNED": ("18446744073709551615",),
    "DECIMAL(65,30)": ("-12345678901234567890123456789012345.123456789012345678901234567890", "-0.5", "0"),
    "DECIMAL(10,0)": ("-9999999999", "7"),
    "DECIMAL(4,4)": ("-0.0001", "0.9999"),
    "FLOAT": ("16777215", "-0.1"),
    "CHAR(255)": ("é" * 255, ""),
    "CHAR(3) CHARACTER SET latin1": ("é€",),
    "TINYTEXT CHARACTER SET utf16le": ("жZ😀",),
    "BINARY(4)": ("\x00a", "ab\x00"),
    "JSON": (
        '{"a": [1, 2.5, null, true], "ж": "x", "big": 18446744073709551615, "small": -70000, "b": {}}',
        '"text"',
        "[]",
        "12.50",
        "null",
    ),
}
OF_MARIADB = {
    "TEXT COMPRESSED": ("xy" * 500, "a", ""),
    "VARCHAR(300) COMPRESSED": ("é" * 250, "short"),
    "VARBINARY(300) COMPRESSED": ("b" * 250,),
    "UUID": ("123e4567-e89b-12d3-a456-426655440000",),
    "INET6": ("::", "2001:db8::1", "::ffff:1.2.3.4"),
    "INET4": ("0.0.0.0", "10.0.0.0"),
}
CHARSETS = {
    "utf16": "жZ😀",
    "ucs2": "жZ",
    "utf32": "😀ж",
    "utf16le": "жZ😀",
    "utf8mb3": "жZ€",
    "big5": "碁中",
    "cp932": "髙①",
    "sjis": "表ｱ\\",
    "ujis": "漢ｱ",
    "eucjpms": "①髙ⅰ～",
    "euckr": "갂한",
    "gb2312": "汉",
    "gbk": "漢€"[:1],
    "latin1": "é€",
    "hebrew": "אב",
    "greek": "αβ",
    "koi8r": "жя",
    "koi8u": "їж",
    "cp866": "жⁿ",
    "swe7": "Åå",
    "dec8": "Œÿ",
    "armscii8": "Ա",
    "keybcs2": "Čř",
    "geostd8": "აბ",
    "tis620": "กข",
    "hp8": "é",
    "macroman": "é∂",
    "macce": "Łč",
    "cp1250": "Łč",
    "cp1251": "жя",
    "cp1256": "پ",
    "cp1257": "ķ",
    "cp850": "é",
    "cp852": "č",
    "latin2": "Łč",
    "latin5": "ğ",
    "latin7": "ķ",
    "ascii": "a",
}


@pytest.fixture(scope="module", params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str) -> Iterator[MariaDb]:
    with started(kind, sql_mode="") as one:
        yield one


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    made.run("SET NAMES utf8mb4", "SET time_zone = '+00:00'")
    yield made
    made.connection.close()


def read_twice(
    database: Database, columns: str, rows: list[list[str]]
) -> tuple[list[SourceRecord], list[SourceRecord]]:
    """The same rows by a snapshot and by the binlog."""
    database.run(f"CREATE TABLE kinds (id INT PRIMARY KEY, {columns})")
    with database.connection.cursor() as cursor:
        for number, row in enumerate(rows):
            cursor.execute(f"INSERT INTO kinds VALUES ({number}, {', '.join(['%s'] * len(row))})", row)
    with running(MysqlSource, database.config()) as source:
        read = source.take(len(rows))
        database.run("CREATE TABLE same LIKE kinds", "INSERT INTO same SELECT * FROM kinds")
        return read, source.take(len(rows))


def same(read: list[SourceRecord], streamed: list[SourceRecord]) -> None:
    """The rows, and how each field is described."""
    assert [each.value["after"] for each in streamed] == [each.value["after"] for each in read]
    first, second = (each[0].value_schema.by_name["after"].schema for each in (read, streamed))  # type: ignore[union-attr]
    assert second.fields == first.fields


def test_values_of_all_types_are_the_same_in_the_snapshot_and_in_the_stream(database: Database, kind: str) -> None:
    kinds = KINDS | OF_MARIADB if kind == "mariadb" else KINDS
    most = max(map(len, kinds.values()))
    rows = [[values[number % len(values)] for values in kinds.values()] for number in range(most)]
    read, streamed = read_twice(database, ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)), rows)
    same(read, streamed)
    assert None not in read[1].value["after"].values()
    times = [[row.value["after"][f"c{fraction}"] for row in read] for fraction in (2, 6)]
    assert times[0][0] == -3_600_250_000
    assert times[1][1] == (-3_020_399_999_999 if kind == "mariadb" else -3_020_399_000_000)
    after = [each.value["after"][f"c{list(KINDS).index('YEAR')}"] for each in streamed]
    assert after[:3] == [0, 1901, 2155]


def test_texts_of_all_character_sets_are_the_same_in_the_snapshot_and_in_the_stream(database: Database) -> None:
    columns = ", ".join(f"c{n} VARCHAR(20) CHARACTER SET {name}" for n, name in enumerate(CHARSETS))
    read, streamed = read_twice(database, columns, [list(CHARSETS.values())])
    same(read, streamed)
    assert [read[0].value["after"][f"c{n}"] for n in range(len(CHARSETS))] == list(CHARSETS.values())


@pytest.mark.soak
def test_documents_with_values_of_other_types_are_the_same_in_the_snapshot_and_in_the_stream() -> None:
    """MariaDB has documents as texts."""
    made = (
        "JSON_OBJECT('d', CAST(12.50 AS DECIMAL(10,2)), 'n', CAST(-0.5 AS DECIMAL(20,10)), "
        "'t', CAST('-01:02:03.5' AS TIME(6)), 'day', CAST('2024-02-29' AS DATE), "
        "'m', CAST('2024-02-29 01:02:03.25' AS DATETIME(6)), 'b', x'00ff', "
        "'e', 1e20, 'l', JSON_ARRAY(40000, -5, 2147483648, REPEAT('x', 70000), NULL))"
    )
    with started("mysql") as server:
        database = Database(server, "documents")
        database.run("CREATE TABLE items (id INT PRIMARY KEY, j JSON)", f"INSERT INTO items VALUES (0, {made})")
        with running(MysqlSource, database.config()) as source:
            read = source.take(1)
            database.run(f"INSERT INTO items VALUES (1, {made})")
            assert source.take(1)[0].value["after"]["j"] == read[0].value["after"]["j"]
        database.connection.close()


def test_every_character_set_of_the_server_is_known(server: MariaDb) -> None:
    with server.connect().cursor() as cursor:
        cursor.execute("SELECT character_set_name FROM information_schema.character_sets")
        for (name,) in cursor.fetchall():
            assert name == "binary" or decoder(name)(b""[:0]) == ""


@pytest.mark.soak
@pytest.mark.parametrize("charset", sorted(set(CHARSETS) - {"utf16", "utf32", "utf16le", "ucs2", "utf8mb3"}))
def test_every_character_is_what_the_server_has(server: MariaDb, charset: str) -> None:
    """The characters that the server has at all: it has `?` for others."""
    leads = range(0x80, 0x100) if charset in MAX_BYTES else ()
    codes = [bytes((each,)) for each in range(0x80 if leads else 0x100)]
    codes += [bytes((lead, trail)) for lead in leads for trail in range(0x40, 0x100)]
    if MAX_BYTES.get(charset) == 3:
        codes += [bytes((0x8F, lead, trail)) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
    decode, different = decoder(charset), {}
    with server.connect().cursor() as cursor:
        for begin in range(0, len(codes), 1000):
            some = codes[begin : begin + 1000]
            rows = " UNION ALL ".join(f"SELECT {n} n, x'{code.hex()}' c" for n, code in enumerate(some))
            text = f"CONVERT(c USING {charset})"
            cursor.execute(f"SELECT HEX({text}), HEX(CONVERT({text} USING utf8mb4)) FROM ({rows}) r ORDER BY n")
            for code, (kept, found) in zip(some, cursor.fetchall(), strict=True):
                text = bytes.fromhex(found or "3f").decode()
                is_there = bytes.fromhex(kept or "") == code and "?" not in text and "\ufffd" not in text
                if is_there and decode(code) != text:
                    different[code.hex()] = (text, decode(code))
    assert different == {}


def test_shapes_are_the_same_in_the_snapshot_and_in_the_stream(database: Database) -> None:
    shapes = {
        "POINT": "POINT(1 2)",
        "LINESTRING": "LINESTRING(0 0,1 1)",
        "POLYGON": "POLYGON((0 0,1 0,1 1,0 0))",
        "MULTIPOINT": "MULTIPOINT(0 0,1 1)",
        "GEOMETRYCOLLECTION": "GEOMETRYCOLLECTION(POINT(1 2))",
        "GEOMETRY": "POINT(3 4)",
    }
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(shapes))
    values = ", ".join(f"ST_GeomFromText('{text}')" for text in shapes.values())
    database.run(
        f"CREATE TABLE kinds (id INT PRIMARY KEY, {columns}, n VARCHAR(5))",
        f"INSERT INTO kinds VALUES (0, {values}, 'é')",
    )
    with running(MysqlSource, database.config()) as source:
        read = source.take(1)
        database.run(f"INSERT INTO kinds VALUES (1, {values}, 'é')")
        after = source.take(1)[0].value["after"]
    assert after == read[0].value["after"] | {"id": 1}


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT, b CHAR(2), PRIMARY KEY (b, a)", ["b", "a"]),
        ("a INT, b VARCHAR(20), PRIMARY KEY (b(3))", ["b"]),
        ("a INT NOT NULL, b INT NOT NULL, c INT NOT NULL UNIQUE, UNIQUE (b, a)", ["c"]),
        ("a INT UNIQUE, b INT NOT NULL, UNIQUE x (b)", ["b"]),
        ("a INT UNIQUE, b INT", []),
    ],
)
def test_keys_are_the_same_in_the_snapshot_and_in_the_stream(database: Database, columns: str, key: list[str]) -> None:
    more = ", 1" if " c " in columns else ""
    database.run(f"CREATE TABLE items ({columns})", f"INSERT INTO items VALUES (1, 2{more})")
    with running(MysqlSource, database.config()) as source:
        (read,) = source.take(1)
        database.run("DELETE FROM items", f"INSERT INTO items VALUES (1, 2{more})")
        streamed = source.until(lambda found: any(each.value and each.value["op"] == "c" for each in found))
    assert streamed[-1].key_schema == read.key_schema
    assert streamed[-1].key == read.key
    assert list(read.key or ()) == key


OLD = "CREATE TABLE items (id INT PRIMARY KEY, v INT UNSIGNED, e ENUM('x','y'), t TIME(3))"
LATER = {
    "dropped": ["DROP TABLE items"],
    "renamed": ["RENAME TABLE items TO old", "CREATE TABLE items (v VARCHAR(9), id VARCHAR(9) PRIMARY KEY)"],
    "swapped": [
        "CREATE TABLE _gho (id BIGINT PRIMARY KEY, v VARCHAR(9), e ENUM('y','x'), more INT, t TIME(3))",
        "RENAME TABLE items TO _del, _gho TO items",
    ],
    "altered": ["ALTER TABLE items ADD n INT FIRST, CHANGE id k INT, MODIFY v SMALLINT", "RENAME TABLE items TO moved"],
    "emptied": ["ALTER TABLE items DROP COLUMN e", "ALTER TABLE items DROP PRIMARY KEY"],
}


@pytest.mark.parametrize("how", LATER)
def test_changes_from_before_a_table_was_altered_have_the_keys_and_types_of_then(database: Database, how: str) -> None:
    database.run(OLD, "INSERT INTO items VALUES (0, 1, 'x', '-00:00:01.5')")
    config = database.config(table_include_list=rf"{database.name}\.items")
    with running(MysqlSource, config) as source:
        (read,) = source.take(1)
        position = source.position
    database.run(
        "INSERT INTO items VALUES (1, 4294967295, 'y', '-00:00:01.5')",
        "UPDATE items SET v = 2 WHERE id = 1",
        "DELETE FROM items WHERE id = 1",
        *LATER[how],
    )
    with running(MysqlSource, config, position) as source:
        found = source.take(4)
    assert ops(found) == [("c", 1), ("u", 1), ("d", 1), (None, 1)]
    for each in found[:3]:
        assert each.key_schema == read.key_schema
        assert each.value_schema == read.value_schema
    assert found[0].value["after"] == {"id": 1, "v": 4_294_967_295, "e": "y", "t": -1_500_000}
    assert found[2].value["before"] == {"id": 1, "v": 2, "e": "y", "t": -1_500_000}


def test_a_column_that_may_have_been_a_uuid_is_named_once_it_is_gone(database: Database, kind: str) -> None:
    if kind != "mariadb":
        pytest.skip("MySQL has no such types")
    database.run("CREATE TABLE items (id INT PRIMARY KEY, u UUID, b BINARY(16))")
    values = "'123e4567-e89b-12d3-a456-426655440000', x'00'"
    context = TaskContext()
    with running(MysqlSource, database.config()) as source:
        source.until(lambda _: source.position is not None and "snapshot" not in source.position)
        position = source.position
    database.run(f"INSERT INTO items VALUES (1, {values})", "ALTER TABLE items ADD n INT, DROP b")
    with running(MysqlSource, database.config(), position, context) as source:
        (found,) = source.take(1)
    assert found.value["after"] == {"id": 1, "u": "123e4567-e89b-12d3-a456-426655440000", "b": bytes(16)}
    assert context.warning is not None
    assert "no longer has b, which the binlog has as BINARY" in context.warning
