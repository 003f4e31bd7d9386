"""Tables as records need them: made, widened, or refused in one sentence."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import ConnectError
from ottla.connect.connectors.relational.database import explained
from ottla.connect.connectors.relational.mapping.columns import is_exact, is_loose, key_type
from ottla.connect.connectors.relational.mapping.names import check_names, split_name
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.connectors.relational.steps import Shape, Step

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Dialect, Table, TextClause
    from sqlalchemy.types import TypeEngine


_COLLATIONS: Final = """
    SELECT column_name, collation_name FROM information_schema.columns
    WHERE table_schema = coalesce(:schema, database()) AND table_name = :table AND collation_name IS NOT NULL
"""


class Tables:
    """The tables of the target, as they were when looked at last."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._known: dict[str, Table] = {}
        self.loose: set[str] = set()
        """Tables of PostgreSQL found to have keys that may be equal though their values are not."""
        self.merging: dict[str, str] = {}
        """By table of MySQL or MariaDB, a sentence: keys that differ may share a row of it."""

    def forget(self) -> None:
        """The tables may have been changed: look again."""
        self._known.clear()

    def fits(self, name: str, step: Step) -> bool:
        """Whether a table is known to have all columns that a step has values for."""
        table = self._known.get(name)
        return table is not None and not _missing(table, step.shape.whole or step.shape)

    def fitting(self, connection: "Connection", name: str, step: Step) -> "Table | None":
        """A table with all columns that a step has values for; None: it is to be created, but this step has no rows,
        and the key alone does not show a row's columns. Raises ConnectError if it lacks columns and may not be changed.
        """
        shape = step.shape.whole or step.shape
        table = self._known.get(name)
        if table is None:
            table = self._found(connection, name, shape, make=bool(step.put))
            if table is None:
                return None
            self._known[name] = table
            if connection.dialect.name == "postgresql" and any(
                is_loose(table.columns[each].type) for each in shape.key if each in table.columns
            ):
                self.loose.add(name)
            if connection.dialect.name in ("mysql", "mariadb") and name not in self.merging:
                self._look_at_collations(connection, name, shape)
        missing = _missing(table, shape)
        if missing:
            check_names(connection.dialect.name, name, shape.names, table.columns.keys())
            self._widen(connection, name, table, shape, missing)
            table = self._known[name] = self._reflected(connection, name)
        return table

    def _found(self, connection: "Connection", name: str, shape: Shape, *, make: bool) -> "Table | None":
        from sqlalchemy import MetaData, Table, inspect

        check_names(connection.dialect.name, name, shape.names)
        schema, table = split_name(name)
        if inspect(connection).has_table(table, schema=schema):
            return self._reflected(connection, name)
        if not self._settings.auto_create:
            raise ConnectError(f"table {name} is not there: make it, or set auto.create=true")
        if not make:
            return None
        with explained(f"making table {name}"):
            Table(table, MetaData(), *_columns(shape, _missing(None, shape), connection.dialect), schema=schema).create(
                connection
            )
        return self._reflected(connection, name)

    def _look_at_collations(self, connection: "Connection", name: str, shape: Shape) -> None:
        from sqlalchemy import text

        schema, table = split_name(name)
        with explained(f"looking at table {name}"):
            found = connection.execute(text(_COLLATIONS), {"schema": schema, "table": table})
            collations = {row[0]: row[1] for row in found}
        column = next((each for each in shape.key if each in collations and not is_exact(collations[each])), None)
        if column is not None:
            self.merging[name] = (
                f"table {name} compares its key column {column} by {collations[column]}, so that keys which differ in "
                "case, accents or blanks at their ends may share a row: give the column a binary collation without "
                "padding (utf8mb4_nopad_bin in MariaDB, utf8mb4_0900_bin in MySQL)"
            )

    def _reflected(self, connection: "Connection", name: str) -> "Table":
        from sqlalchemy import MetaData, Table

        schema, table = split_name(name)
        with explained(f"looking at table {name}"):
            return Table(table, MetaData(), schema=schema, autoload_with=connection)

    def _widen(self, connection: "Connection", name: str, table: "Table", shape: Shape, missing: list[str]) -> None:
        from sqlalchemy.schema import CreateColumn, DefaultClause

        if not self._settings.auto_evolve:
            raise ConnectError(f"table {name} has no column {missing[0]}: add it, or set auto.evolve=true")
        targets = dict(zip(shape.names, shape.targets, strict=True))
        nullable = dict(zip(shape.names, shape.nullable, strict=True))
        required = [each for each in missing if not nullable[each] and targets[each].default is None]
        if required:
            raise ConnectError(
                f"table {name} has no column {required[0]}, and one that may not be null cannot be added to the rows "
                "that are there: add it by hand, with a default, or make the field optional"
            )
        quoted = connection.dialect.identifier_preparer.format_table(table)
        for column in _columns(shape, missing, connection.dialect):
            default = targets[column.name].default
            if default is not None and not nullable[column.name]:
                column.server_default = DefaultClause(_literal(default, column.type, connection.dialect))
            what = str(CreateColumn(column).compile(dialect=connection.dialect))
            with explained(f"adding column {column.name} to table {name}"):
                connection.exec_driver_sql(f"ALTER TABLE {quoted} ADD COLUMN {what}")


def _literal(value: Any, kind: "TypeEngine[Any]", dialect: "Dialect") -> "TextClause":
    """A default for the rows that are there; MySQL wants that of a long text in brackets, SQLite without."""
    from sqlalchemy import String, literal, text

    if isinstance(value, Decimal) and dialect.name == "sqlite":  # which has none
        value = f"{value:f}"
    if isinstance(value, str):  # also a time that Python has not: 24:00:00, or infinity
        kind = String()
    written = str(literal(value, kind).compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return text(f"({written})" if dialect.name in ("mysql", "mariadb") else written)


def _missing(table: "Table | None", shape: Shape) -> list[str]:
    """Columns that the shape's rows need, and a table (None: one that is not there) has not."""
    there = table.columns if table is not None else ()
    return [each for each in shape.names if each not in there and each not in shape.without_values]


def _columns(shape: Shape, names: list[str], dialect: "Dialect") -> "list[Column[Any]]":
    from sqlalchemy import Column

    columns: list[Column[Any]] = []
    for name, target, nullable in zip(shape.names, shape.targets, shape.nullable, strict=True):
        in_key = name in shape.key
        kind = key_type(target.type, dialect) if in_key else target.type
        if name in names:
            columns.append(Column(name, kind, primary_key=in_key, nullable=nullable, autoincrement=False))
    return columns
