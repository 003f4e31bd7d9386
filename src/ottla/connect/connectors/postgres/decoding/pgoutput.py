"""PURE: PostgreSQL's logical replication messages, as the plugin `pgoutput` writes them: protocol version 1, texts.

Source: PostgreSQL's documentation, "Logical Replication Message Formats". Integers are big-endian, texts end by a 0:

    B  final_lsn:8  committed_at:8  xid:4                           a transaction begins
    R  oid:4  schema  table  identity:1  n:2  n x (key:1 name type_oid:4 typmod:4)
    I  oid:4  'N' tuple                U, D: first 'K' or 'O' tuple (U: only if the identity changed)
    C  flags:1  commit_lsn:8  end_lsn:8  committed_at:8
    tuple = n:2, n x ('n' null | 'u' unchanged TOAST | 't' size:4 text | 'b' size:4 binary)
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeAlias

_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, the epoch of PostgreSQL's microseconds, in microseconds since 1970."""

_BEGIN: Final = Struct(">xQqI")
_COMMIT: Final = Struct(">xxQQq")
_COUNT: Final = Struct(">H")
_COLUMN_TYPE: Final = Struct(">Ii")
_OID: Final = Struct(">I")
_VALUE: Final = Struct(">BI")
_PADDING: Final = bytes(4)


class Unchanged(Enum):
    """Marks a value that was stored out of line and did not change: the server does not send it."""

    TOAST = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.TOAST
Value: TypeAlias = str | Unchanged | None
Values: TypeAlias = list[Value]


class UndecodableError(ValueError):
    """These bytes are none of the plugin's messages."""


@dataclass(frozen=True, slots=True)
class Begin:
    """`final_lsn`: of the commit that follows; times are microseconds since 1970."""

    final_lsn: int
    committed_at_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`end_lsn`: of what follows the commit, the place to go on from."""

    commit_lsn: int
    end_lsn: int
    committed_at_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The server on which the transaction was made first."""

    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a Relation message."""

    name: str
    type_oid: int
    type_modifier: int
    in_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is for the changes that follow. `identity`: d(efault), n(othing), f(ull) or i(ndex)."""

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type that is not built in, sent before the first relation that uses it."""

    oid: int
    schema: str
    name: str


@dataclass(slots=True)
class Insert:
    """A new row of the relation with this OID."""

    relation: int
    new: Values


@dataclass(slots=True)
class Update:
    """`old` is the whole row (`old_is_whole`), or its identity alone (null elsewhere) where that changed, or absent."""

    relation: int
    old: Values | None
    old_is_whole: bool
    new: Values


@dataclass(slots=True)
class Delete:
    """`old` as in `Update`."""

    relation: int
    old: Values
    old_is_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Relations, by OID, that were emptied by one statement."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What `pg_logical_emit_message` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message: TypeAlias = (
    Begin | Commit | Origin | Relation | TypeName | Insert | Update | Delete | Truncate | LogicalMessage
)


def decode(data: bytes) -> Message:
    """One message. Raises UndecodableError for bytes that are none, or of a newer protocol."""
    try:
        return _decode(data)
    except (struct_error, IndexError, ValueError) as error:
        kind = chr(data[0]) if data else "an empty one"
        raise UndecodableError(f"a message of the replication stream cannot be read ({kind!r}): {error}") from error


def _decode(data: bytes) -> Message:
    kind = data[0]
    if kind == 0x49:  # I
        return Insert(_OID.unpack_from(data, 1)[0], _tuple(data, 6)[0])
    if kind == 0x55:  # U
        (relation,) = _OID.unpack_from(data, 1)
        if data[5] == 0x4E:  # N
            return Update(relation, None, False, _tuple(data, 6)[0])
        old, at = _tuple(data, 6)
        return Update(relation, old, data[5] == 0x4F, _tuple(data, at + 1)[0])
    if kind == 0x44:  # D
        return Delete(_OID.unpack_from(data, 1)[0], _tuple(data, 6)[0], data[5] == 0x4F)
    if kind == 0x42:  # B
        final_lsn, committed_at, xid = _BEGIN.unpack(data)
        return Begin(final_lsn, committed_at + _EPOCH_US, xid)
    if kind == 0x43:  # C
        commit_lsn, end_lsn, committed_at = _COMMIT.unpack(data)
        return Commit(commit_lsn, end_lsn, committed_at + _EPOCH_US)
    return _decode_rare(kind, data)


def _decode_rare(kind: int, data: bytes) -> Message:
    if kind == 0x52:  # R
        return _relation(data)
    if kind == 0x59:  # Y
        schema, at = _text(data, 5)
        return TypeName(_OID.unpack_from(data, 1)[0], schema, _text(data, at)[0])
    if kind == 0x4F:  # O
        return Origin(_text(data, 9)[0])
    if kind == 0x54:  # T
        (count,) = _OID.unpack_from(data, 1)
        relations = tuple(_OID.unpack_from(data, 6 + 4 * number)[0] for number in range(count))
        return Truncate(relations, bool(data[5] & 1), bool(data[5] & 2))
    if kind == 0x4D:  # M
        prefix, at = _text(data, 10)
        (size,) = _OID.unpack_from(data, at)
        return LogicalMessage(
            bool(data[1] & 1), int.from_bytes(data[2:10], "big"), prefix, data[at + 4 : at + 4 + size]
        )
    raise ValueError("unknown kind")


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        in_identity = bool(data[at] & 1)
        name, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN_TYPE.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(name, type_oid, modifier, in_identity))
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    """Values that begin at `at`, and where they end."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    end = len(data)
    data += _PADDING  # a value without a size may be the last
    head = _VALUE.unpack_from
    values: Values = []
    put = values.append
    for _ in range(count):
        kind, size = head(data, at)
        if kind == 0x74:  # t
            at += 5
            put(data[at : at + size].decode())
            at += size
        elif kind == 0x6E:  # n
            put(None)
            at += 1
        elif kind == 0x75:  # u
            put(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"a value of kind {chr(kind)!r}")
    if at > end:
        raise ValueError("it is cut off")
    return values, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
