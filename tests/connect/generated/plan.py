"""PURE: a seed's plan of statements and kills, and what the plan knows of the tables' history.

A plan models schemas, not rows: which rows a statement finds is the database's business. What a check needs to know is
in the rows. Column `v` has the number of the statement that wrote the row last, which says for an event which form its
table had; column `n` counts the changes of a row, which shows an event that is lost, doubled or out of order.

Sessions own the rows whose `id` leaves their number when divided by SESSIONS, so that none waits for another, and a
table's form is changed only while no other session has it in an open transaction. A statement that changes rows may
fail (a duplicate key, a lock): the model does not change then. One that changes a form may not.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from tests.connect.generated.kinds import KINDS, Database

SESSIONS: Final = 3
SMALL_IDS: Final = 120
"""Ids below are inserted again and again."""
TABLE_NAMES: Final = ("alpha", "beta", "gamma", "delta")
MARKER: Final = "marker"
"""A table whose rows say how far the connector is."""

Victim = Literal["worker", "broker", "database"]


@dataclass(frozen=True, slots=True)
class Column:
    """`number` stays through changes of name and kind. default: the value of rows from before the column."""

    number: int
    name: str
    kind: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Form:
    """What a table is like from a statement on. lineage: the table, whatever its name. key: numbers of columns."""

    lineage: int
    name: str
    since: int
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    whole_before: bool
    """Whether changes and deletes have the row as it was."""

    @property
    def key_columns(self) -> list[Column]:
        """In the order of the key."""
        return [next(each for each in self.columns if each.number == number) for number in self.key]


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL of a session. may_fail: the model does not depend on it."""

    session: int
    sql: str
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a process and start it again, so long after what comes before."""

    victim: Victim
    pause_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when the connector has handed on everything that was committed."""


Step = Statement | Kill | Wait


@dataclass(slots=True)
class Plan:
    """forms: all that were committed, in the order of `since`. tables: those at the end."""

    seed: int
    database: Database
    before: list[Step]
    """What is done before the connector is made: its snapshot reads it."""
    steps: list[Step]
    forms: list[Form]
    tables: list[Form]


@dataclass(slots=True)
class _Open:
    """A transaction. touched: tables that it has locked. altered: what forms those had that it has altered, and saved:
    what forms these had at each savepoint."""

    touched: set[int] = field(default_factory=set)
    altered: dict[int, list[Form]] = field(default_factory=dict)
    saved: list[dict[int, list[Form]]] = field(default_factory=list)


def make_plan(
    seed: int,
    database: Database,
    *,
    statements: int,
    kills: int,
    biggest: int = 3000,
    alters_in_transactions: bool = True,
) -> Plan:
    """The plan of a seed. biggest: rows of the largest transactions."""
    return _Planner(seed, database, biggest, alters_in_transactions).plan(statements, kills)


class _Planner:
    def __init__(self, seed: int, database: Database, biggest: int, alters_in_transactions: bool) -> None:
        self._alters_in_transactions = alters_in_transactions and database == "postgres"  # MariaDB would commit
        self._seed = seed
        self._dice = random.Random(f"{seed} {database}")
        self._database: Database = database
        self._kinds = KINDS[database]
        self._biggest = biggest
        self._steps: list[Step] = []
        self._number = 0
        self._columns = 0
        self._lineages = 0
        self._next_id = 1000
        self._forms: dict[int, list[Form]] = {}
        """All forms of each table that is there, by its lineage: of open transactions, too."""
        self._gone: list[Form] = []
        self._open: dict[int, _Open] = {}

    def plan(self, statements: int, kills: int) -> Plan:
        """Make it, once."""
        marker = "CREATE TABLE marker (id int PRIMARY KEY)"
        self._steps.append(Statement(0, marker))
        for name in TABLE_NAMES[:3]:
            self._create(0, name)
        for _ in range(20):
            self._change_rows(0, self._table())
        before, self._steps = self._steps, []
        kill_at = sorted(self._dice.sample(range(statements // 10, statements), kills))
        while self._number < statements:
            if kill_at and self._number >= kill_at[0]:
                kill_at.pop(0)
                self._kill()
            self._next()
        for session in range(SESSIONS):
            self._end(session, commit=True)
        tables = [forms[-1] for forms in self._forms.values()]
        every = [*self._gone, *(each for forms in self._forms.values() for each in forms)]
        every.sort(key=lambda form: form.since)
        return Plan(self._seed, self._database, before, self._steps, every, tables)

    def _next(self) -> None:
        dice = self._dice
        session = dice.randrange(SESSIONS)
        is_open = session in self._open
        action = dice.random()
        if action < 0.12:
            self._end(session, commit=dice.random() < 0.8) if is_open else self._begin(session)
        elif action < 0.18 and is_open:
            self._savepoint(session)
        elif action < 0.26:
            self._restructure(session)
        elif action < 0.27:
            self._many_rows(session)
        else:
            tables = self._usable(session)
            if tables:
                self._change_rows(session, dice.choice(tables))

    # transactions

    def _begin(self, session: int) -> None:
        self._say(session, "BEGIN")
        self._open[session] = _Open()

    def _end(self, session: int, *, commit: bool) -> None:
        if session not in self._open:
            return
        self._say(session, "COMMIT" if commit else "ROLLBACK")
        transaction = self._open.pop(session)
        if not commit:
            self._forms.update(transaction.altered)

    def _savepoint(self, session: int) -> None:
        transaction = self._open[session]
        if transaction.saved and self._dice.random() < 0.6:
            forms = transaction.saved.pop()
            name = f"s{len(transaction.saved)}"
            if self._dice.random() < 0.6:
                self._say(session, f"ROLLBACK TO SAVEPOINT {name}")
                self._forms.update({each: forms.get(each, first) for each, first in transaction.altered.items()})
            self._say(session, f"RELEASE SAVEPOINT {name}")
        else:
            self._say(session, f"SAVEPOINT s{len(transaction.saved)}")
            transaction.saved.append({lineage: self._forms[lineage] for lineage in transaction.altered})

    def _kill(self) -> None:
        victim: Victim = self._dice.choice(("worker", "worker", "worker", "broker", "database"))
        self._steps.append(Wait())
        for _ in range(self._dice.randint(5, 60)):
            self._next()
        if self._dice.random() < 0.4:
            session = self._dice.randrange(SESSIONS)
            self._many_rows(session)
            self._end(session, commit=True)
        self._steps.append(Kill(victim, round(self._dice.uniform(0, 0.5), 3)))
        if victim == "database":
            for transaction in self._open.values():
                self._forms.update(transaction.altered)
            self._open.clear()

    # rows

    def _usable(self, session: int) -> list[Form]:
        """Tables that no other session has altered."""
        locked = {each for other, open_ in self._open.items() if other != session for each in open_.altered}
        return [forms[-1] for lineage, forms in self._forms.items() if lineage not in locked]

    def _table(self) -> Form:
        return self._dice.choice([forms[-1] for forms in self._forms.values()])

    def _change_rows(self, session: int, table: Form) -> None:
        self._touch(session, table)
        dice, number = self._dice, self._numbered()
        action = dice.random()
        if action < 0.4:
            rows = [self._row(table, id_, number) for id_ in self._ids(session, dice.randint(1, 4))]
            self._say(session, self._insert(table, rows, number), may_fail=True)
        elif action < 0.75:
            named = {each.number: each.name for each in table.columns}
            values = [each for each in table.columns[4:] if dice.random() < 0.5]
            sets = "".join(f", {each.name} = {self._literal(each)}" for each in values)
            self._say(
                session,
                f"UPDATE {table.name} SET {named[2]} = {number}, {named[3]} = {named[3]} + 1{sets} "
                f"WHERE {self._where(session, table)}",
                may_fail=True,
            )
        elif action < 0.85:
            id_, code, v, n = (each.name for each in table.columns[:4])
            new = self._fresh(session, 1)[0]
            old = self._condition(table, self._ids(session, 1))
            self._say(
                session,
                f"UPDATE {table.name} SET {id_} = {new}, {code} = 'Key-{new}', {v} = {number}, {n} = {n} + 1 "
                f"WHERE {old}",
                may_fail=True,
            )
        else:
            self._say(session, f"DELETE FROM {table.name} WHERE {self._where(session, table)}", may_fail=True)

    def _many_rows(self, session: int) -> None:
        """Insert many at once, and often change and delete them."""
        tables = self._usable(session)
        if not tables:
            return
        dice, table = self._dice, self._dice.choice(tables)
        self._touch(session, table)
        ids = self._fresh(session, dice.randint(self._biggest // 10, self._biggest))
        first, last = ids[0], ids[-1]
        columns = table.columns
        series = (
            f"generate_series({first}, {last}, {SESSIONS}) AS seq"
            if self._database == "postgres"
            else f"seq_{first}_to_{last}_step_{SESSIONS}"
        )
        values = "".join(f", {self._literal(each)}" for each in columns[4:])
        names = ", ".join(each.name for each in columns)
        number = self._numbered()
        code = "'Key-' || seq" if self._database == "postgres" else "CONCAT('Key-', seq)"
        self._say(
            session,
            f"INSERT INTO {table.name} ({names}) SELECT seq, {code}, {number}, 0{values} FROM {series}",
            may_fail=True,
        )
        id_, v, n = columns[0].name, columns[2].name, columns[3].name
        rows = f"{id_} BETWEEN {first} AND {last} AND {id_} % {SESSIONS} = {session}"
        if dice.random() < 0.5:
            number = self._numbered()
            self._say(session, f"UPDATE {table.name} SET {v} = {number}, {n} = {n} + 1 WHERE {rows}", may_fail=True)
        if dice.random() < 0.7:
            self._numbered()
            self._say(session, f"DELETE FROM {table.name} WHERE {rows}", may_fail=True)

    def _insert(self, table: Form, rows: list[str], number: int) -> str:
        names = ", ".join(each.name for each in table.columns)
        v, n = table.columns[2].name, table.columns[3].name
        again = self._dice.random() < 0.5
        text = f"INSERT INTO {table.name} ({names}) VALUES {', '.join(rows)}"
        if self._database == "postgres":
            key = ", ".join(each.name for each in table.key_columns)
            then = f"UPDATE SET {v} = {number}, {n} = {table.name}.{n} + 1" if again else "NOTHING"
            return f"{text} ON CONFLICT ({key}) DO {then}"
        return f"{text} ON DUPLICATE KEY UPDATE {v} = {number}, {n} = {n} + 1" if again else text

    def _row(self, table: Form, id_: int, number: int) -> str:
        values = [str(id_), f"'Key-{id_}'", str(number), "0", *(self._literal(each) for each in table.columns[4:])]
        return f"({', '.join(values)})"

    def _literal(self, column: Column) -> str:
        return "NULL" if self._dice.random() < 0.2 else self._kinds[column.kind].make(self._dice)[0]

    def _ids(self, session: int, count: int) -> list[int]:
        """Different small ones of a session."""
        return self._dice.sample(range(session, SMALL_IDS, SESSIONS), count)

    def _fresh(self, session: int, count: int) -> list[int]:
        first = self._next_id - self._next_id % SESSIONS + SESSIONS + session
        ids = list(range(first, first + count * SESSIONS, SESSIONS))
        self._next_id = ids[-1] + 1
        return ids

    def _where(self, session: int, table: Form) -> str:
        return self._condition(table, self._ids(session, self._dice.randint(1, 15)))

    def _condition(self, table: Form, ids: list[int]) -> str:
        """By the first column of the key, so that an index finds the rows and none but these are locked."""
        column = table.key_columns[0]
        values = ", ".join(map(str, ids) if column.number == 0 else (f"'Key-{each}'" for each in ids))
        return f"{column.name} IN ({values})"

    # forms

    def _restructure(self, session: int) -> None:
        dice = self._dice
        others = {each for other, open_ in self._open.items() if other != session for each in open_.touched}
        tables = [forms[-1] for lineage, forms in self._forms.items() if lineage not in others]
        in_transaction = session in self._open
        if in_transaction and not self._alters_in_transactions:
            return
        if not tables:
            return
        table = dice.choice(tables)
        if not in_transaction and dice.random() < 0.2:
            self._replace_table(session, table)
            return
        add, drop, rename = self._add_column, self._drop_column, self._rename_column
        alter: Callable[[int, Form], None] = dice.choice((add, add, drop, rename, self._change_type, self._change_key))
        alter(session, table)

    def _replace_table(self, session: int, table: Form) -> None:
        """Create, drop or rename one; its first statement after that shows by `v` that it is another."""
        dice = self._dice
        used = {forms[-1].name for forms in self._forms.values()}
        free = [name for name in TABLE_NAMES if name not in used]
        action = dice.random()
        if action < 0.4 and free:
            if len(self._forms) < len(TABLE_NAMES) - 1:
                self._create(session, dice.choice(free))
            else:
                self._rename_table(session, table, dice.choice(free))
        else:
            self._wait_if_unreadable(table)
            self._say(session, f"DROP TABLE {table.name}")
            self._gone += self._forms.pop(table.lineage)
            self._create(session, table.name)

    def _create(self, session: int, name: str) -> None:
        dice, lineage = self._dice, self._lineages
        self._lineages += 1
        kinds = ["int", "varchar", "bigint", "int", *dice.choices(list(self._kinds), k=dice.randint(1, 5))]
        names = ["id", "code", "v", "n", *(self._new_name() for _ in kinds[4:])]
        columns = tuple(Column(number, names[number], kind) for number, kind in enumerate(kinds))
        key = dice.choice(((0,), (0,), (1,), (0, 1), (1, 0)))
        whole = self._database == "mariadb" or dice.random() < 0.3
        table = Form(lineage, name, self._numbered(), columns, key, whole)
        defined = [
            f"{each.name} {self._kinds[each.kind].sql}{' NOT NULL' if each.number < 4 else ''}" for each in columns
        ]
        self._say(session, f"CREATE TABLE {name} ({', '.join(defined)}, {self._key_sql(table)})")
        if self._database == "postgres":
            for each in columns:
                if each.kind == "toast":
                    self._say(session, f"ALTER TABLE {name} ALTER {each.name} SET STORAGE EXTERNAL")
            if whole:
                self._say(session, f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        self._forms[lineage] = [table]
        self._first_row(session, table)

    def _rename_table(self, session: int, table: Form, name: str) -> None:
        self._wait_if_unreadable(table)
        self._say(session, f"ALTER TABLE {table.name} RENAME TO {name}")
        self._change(session, replace(table, name=name, since=self._numbered()))
        self._first_row(session, self._forms[table.lineage][-1])

    def _first_row(self, session: int, table: Form) -> None:
        """A row whose `v` says that the form is another, where the names of columns do not."""
        number = self._numbered()
        row = self._row(table, self._fresh(session, 1)[0], number)
        names = ", ".join(each.name for each in table.columns)
        self._say(session, f"INSERT INTO {table.name} ({names}) VALUES {row}")

    def _add_column(self, session: int, table: Form) -> None:
        if len(table.columns) > 12:
            return
        kind = self._dice.choice([each for each in self._kinds if each not in ("toast", "text")])
        number = 100 + self._numbered()
        column = Column(number, self._new_name(), kind)
        text = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {self._kinds[kind].sql}"
        if self._dice.random() < 0.5:
            literal, value = self._kinds[kind].make(self._dice)
            column = replace(column, default=value)
            text += f" DEFAULT {literal}"
        self._alter(session, table, text, columns=(*table.columns, column))

    def _drop_column(self, session: int, table: Form) -> None:
        if len(table.columns) <= 5:
            return
        gone = self._dice.choice(table.columns[4:])
        columns = tuple(each for each in table.columns if each is not gone)
        self._alter(session, table, f"ALTER TABLE {table.name} DROP COLUMN {gone.name}", columns=columns)

    def _rename_column(self, session: int, table: Form) -> None:
        column = self._dice.choice(table.columns)
        if column.number in table.key:
            if self._has_unreadable(session, table):
                return
            self._wait_if_unreadable(table)
        name = self._new_name()
        columns = tuple(replace(each, name=name) if each is column else each for each in table.columns)
        self._alter(session, table, f"ALTER TABLE {table.name} RENAME COLUMN {column.name} TO {name}", columns=columns)

    def _change_type(self, session: int, table: Form) -> None:
        fit = [each for each in table.columns if self._grows_to(each)]
        if not fit:
            return
        column = self._dice.choice(fit)
        kind = self._dice.choice(self._grows_to(column))
        sql, is_null = self._kinds[kind].sql, " NOT NULL" if column.number < 4 else ""
        text = (
            f"ALTER TABLE {table.name} ALTER COLUMN {column.name} TYPE {sql}"
            if self._database == "postgres"
            else f"ALTER TABLE {table.name} MODIFY {column.name} {sql}{is_null}"
        )
        columns = tuple(replace(each, kind=kind) if each is column else each for each in table.columns)
        self._alter(session, table, text, columns=columns)
        self._first_row(session, self._forms[table.lineage][-1])

    def _grows_to(self, column: Column) -> list[str]:
        kinds = [kind for kind, _ in self._kinds[column.kind].grows_to]
        if column.number < 4:  # numbers that are counted with, and a text of which an index can be
            return [kind for kind in kinds if kind == "bigint"]
        return kinds

    def _change_key(self, session: int, table: Form) -> None:
        key = self._dice.choice([each for each in ((0,), (1,), (0, 1), (1, 0)) if each != table.key])
        changed = replace(table, key=key)
        if self._has_unreadable(session, table):
            return
        self._wait_if_unreadable(table)
        drop = f"CONSTRAINT {_constraint(table)}" if self._database == "postgres" else "PRIMARY KEY"
        text = f"ALTER TABLE {table.name} DROP {drop}, ADD {self._key_sql(changed)}"
        self._alter(session, table, text, key=key)
        self._first_row(session, self._forms[table.lineage][-1])

    def _alter(self, session: int, table: Form, text: str, **changes: Any) -> None:
        changed = replace(table, since=self._numbered(), **changes)
        self._touch(session, table)
        self._say(session, text)
        self._change(session, changed)

    def _change(self, session: int, changed: Form) -> None:
        """Remember the new form, and in a transaction what was before."""
        forms = self._forms[changed.lineage]
        if session in self._open:
            self._open[session].altered.setdefault(changed.lineage, list(forms))
        self._forms[changed.lineage] = [*forms, changed]

    def _wait_if_unreadable(self, table: Form) -> None:
        """docs/connectors.md: with REPLICA IDENTITY FULL changes from before do not say what the key was."""
        if self._database == "postgres" and table.whole_before:
            self._steps.append(Wait())

    def _has_unreadable(self, session: int, table: Form) -> bool:
        """Whether such changes may be in this very transaction, for which no waiting helps."""
        return self._database == "postgres" and table.whole_before and session in self._open

    # small things

    def _touch(self, session: int, table: Form) -> None:
        if session in self._open:
            self._open[session].touched.add(table.lineage)

    def _numbered(self) -> int:
        self._number += 1
        return self._number

    def _new_name(self) -> str:
        self._columns += 1
        return f"c{self._columns}"

    def _key_sql(self, table: Form) -> str:
        columns = ", ".join(each.name for each in table.key_columns)
        named = f"CONSTRAINT {_constraint(table)} " if self._database == "postgres" else ""
        return f"{named}PRIMARY KEY ({columns})"

    def _say(self, session: int, sql: str, *, may_fail: bool = False) -> None:
        self._steps.append(Statement(session, sql, may_fail))


def _constraint(table: Form) -> str:
    """Its name stays when the table's changes."""
    return f"key_{table.lineage}_{''.join(map(str, table.key))}"
