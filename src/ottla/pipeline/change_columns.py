"""The columns that rows of a captured table have beside those of the table."""

from collections.abc import Iterable
from typing import Final, Protocol

OP: Final = "_op"
"""What the change was: c (insert), u (update), d (delete), r (read by a snapshot), t (the table was truncated)."""
TS: Final = "_ts"
"""When the database made the change (`source.ts_ms`)."""
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
"""Where the change stands in the topic. Changes of one key are in one partition, in the order of their offsets."""
COLUMNS: Final = (OP, TS, PARTITION, OFFSET)

DELETE: Final = "d"
TRUNCATE: Final = "t"
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
"""When a version of a row began and ended, in a table of all versions; null while it lasts."""
KEY_METADATA: Final = "ottla.key"
"""In the metadata of a column that is part of the table's key: its place in the key."""
KEYLESS_METADATA: Final = "ottla.keyless"
"""In the metadata of `_offset` if the records have no keys: changes of one row may be in several partitions then."""
TRUNCATES_METADATA: Final = "ottla.truncates"
"""In the metadata of `_op` if truncates are among the changes."""


class _Field(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def metadata(self) -> dict[str, object]: ...


def key_columns(fields: Iterable[_Field]) -> tuple[str, ...]:
    """The names of the columns that make the key, in its order; none if it is not known."""
    places = {each.name: place for each in fields if isinstance(place := each.metadata.get(KEY_METADATA), int)}
    return tuple(sorted(places, key=lambda name: places[name]))
