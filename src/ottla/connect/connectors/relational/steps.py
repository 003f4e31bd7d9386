"""PURE: rows of one table that come and go, in as few steps as leave the same rows behind."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.connect.connectors.relational.mapping.columns import Target

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows of one kind look like.

    key: the names of the key's columns, which come first. whole: the shape of the table's rows, where these have not
    all of their columns, because what is in the others is not known and stays. without_values: the names of columns in
    which there are nulls alone, without a schema: of which type they would be is not known.
    """

    names: tuple[str, ...]
    targets: tuple[Target, ...] = field(compare=False)
    key: tuple[str, ...]
    nullable: tuple[bool, ...] = field(compare=False)
    whole: "Shape | None" = field(compare=False, default=None)
    without_values: tuple[str, ...] = field(compare=False, default=())

    def learning_from(self, other: "Shape") -> "Shape":
        """This shape, with targets of another one for columns that have had no values."""
        known = {
            name: target
            for name, target in zip(other.names, other.targets, strict=True)
            if name not in other.without_values
        }
        targets = zip(self.names, self.targets, strict=True)
        return replace(
            self,
            targets=tuple(
                [known.get(name, target) if name in self.without_values else target for name, target in targets]
            ),
            whole=self.whole.learning_from(other.whole or other) if self.whole is not None else None,
            without_values=tuple([name for name in self.without_values if name not in known]),
        )

    def without(self, names: Container[str]) -> "Shape":
        """This shape, less some columns that are not the key's."""
        kept = [number for number, name in enumerate(self.names) if name not in names]
        return replace(
            self,
            names=tuple([self.names[number] for number in kept]),
            targets=tuple([self.targets[number] for number in kept]),
            nullable=tuple([self.nullable[number] for number in kept]),
            without_values=tuple([name for name in self.without_values if name not in names]),
        )


@dataclass(slots=True)
class Step:
    """Rows of one shape that a database can take at once: keys whose rows go, then rows that come.

    repeating: whether a key may come more than once; the last row counts then, where keys count.
    """

    shape: Shape
    removed: list[Row]
    put: list[Row]
    repeating: bool = False

    def within(self, columns: Container[str]) -> "Step":
        """This step, for a table with these columns: what has no values needs none."""
        absent = [name for name in self.shape.without_values if name not in columns]
        if not absent:
            return self
        kept = [number for number, name in enumerate(self.shape.names) if name not in absent]
        return Step(
            self.shape.without(absent),
            self.removed,
            [tuple([row[number] for number in kept]) for row in self.put],
            self.repeating,
        )


class Steps:
    """Collects what happens to one table, in its order.

    by_key: the last row of a key counts, as in an upsert; otherwise all rows are inserted, in order, and none before
    a deleted key.
    """

    def __init__(self, *, by_key: bool) -> None:
        self._by_key = by_key
        self._made: list[Step] = []
        self._shape: Shape | None = None
        """Shape of the rows in this step; None while there are only deletes."""
        self._keys_alone: Shape | None = None
        """Shape of the first deleted key in this step."""
        self._key: tuple[str, ...] | None = None
        """Names of this step's key; None while it is empty."""
        self._gone: dict[Row, None] = {}
        self._rows: dict[Row, Row] = {}
        self._order: list[Row] = []

    def put(self, shape: Shape, row: Row) -> None:
        """A row in the shape's order comes."""
        if shape is not self._shape:
            if shape != self._shape:
                if self._shape is not None or self._key not in (None, shape.key):
                    self._end()
                self._shape, self._key = shape, shape.key
            elif self._shape.without_values:
                self._shape = self._shape.learning_from(shape)
        if self._by_key:
            self._rows[row[: len(shape.key)]] = row
        else:
            self._order.append(row)

    def remove(self, shape: Shape, key: Row) -> None:
        """Delete the row with this key; the shape's key names the columns."""
        if self._key not in (None, shape.key) or self._order:
            self._end()
        if self._key is None:
            self._key, self._keys_alone = shape.key, shape
        self._gone[key] = None
        self._rows.pop(key, None)

    def finish(self) -> list[Step]:
        """All steps; nothing is collected any more."""
        self._end()
        return self._made

    def _end(self) -> None:
        shape = self._shape or self._keys_alone
        if shape is None:
            return
        rows = list(self._rows.values()) if self._by_key else self._order
        self._made.append(Step(shape, list(self._gone), rows, repeating=not self._by_key))
        self._shape = self._keys_alone = self._key = None
        self._gone, self._rows, self._order = {}, {}, []
