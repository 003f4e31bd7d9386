"""PURE: tables rebuilt from a topic's events, and what is wrong with these.

Events are sorted by table and form first: a topic has the changes of all tables that ever had its name, one after the
other. Then each table's events are applied in order, and its rows take part in each change of form.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.connect.generated.kinds import Database, grown
from tests.connect.generated.plan import Form

UNAVAILABLE: Final = "__debezium_unavailable_value"
Row = Mapping[int, Any]
"""Values by the numbers of columns."""
Key = tuple[Any, ...]
_V: Final = 2
_N: Final = 3


@dataclass(frozen=True, slots=True)
class Event:
    """A record of a topic. value: the envelope's payload; None for a tombstone. old_key: of a row whose key changed."""

    key: Mapping[str, Any]
    value: Mapping[str, Any] | None
    old_key: Mapping[str, Any] | None = None

    @property
    def op(self) -> str | None:
        return None if self.value is None else self.value["op"]

    @property
    def after(self) -> Mapping[str, Any] | None:
        return None if self.value is None else self.value["after"]


@dataclass(slots=True)
class Rebuilt:
    """tables: rows by their keys, by the tables' lineages. problems: a sentence for each event that cannot be."""

    tables: dict[int, dict[Key, Row]]
    problems: list[str]


def rebuild(database: Database, forms: Sequence[Form], topics: Mapping[str, Sequence[Event]]) -> Rebuilt:
    """Tables as the topics have them. forms: in the order of `since`. topics: events by the tables' names."""
    problems: list[str] = []
    by_form: dict[int, list[Event]] = defaultdict(list)
    for name, events in topics.items():
        own = [number for number, form in enumerate(forms) if form.name == name]
        if events and not own:
            problems.append(f"a table {name} was never committed: {events[0]}")
            continue
        _sort(name, events, own, forms, by_form, problems)
    tables: dict[int, _Table] = {}
    for number, form in enumerate(forms):
        table = tables.setdefault(form.lineage, _Table(database, problems))
        table.take_form(form)
        for event in by_form[number]:
            table.take(event)
        table.end()
    return Rebuilt({lineage: table.rows for lineage, table in tables.items()}, problems)


def differences(name: str, rebuilt: Mapping[Key, Row], real: Mapping[Key, Row]) -> list[str]:
    """A sentence for each row that is not the same in a table and in what was rebuilt of it."""
    found = [f"{name} has {key}, and the topic does not" for key in real.keys() - rebuilt.keys()]
    found += [f"the topic has {key}, and {name} does not" for key in rebuilt.keys() - real.keys()]
    for key in real.keys() & rebuilt.keys():
        unlike = {
            number: (rebuilt[key].get(number), value)
            for number, value in real[key].items()
            if rebuilt[key].get(number) != value
        }
        if unlike:
            found.append(f"{name} {key} differs by column (topic, table): {str(unlike)[:500]}")
    return found


def _sort(
    name: str,
    events: Sequence[Event],
    own: Sequence[int],
    forms: Sequence[Form],
    by_form: dict[int, list[Event]],
    problems: list[str],
) -> None:
    """Give each event to the form that its table had.

    That is said by `v` and the names of columns. Deletes have these alone, and follow what is before them if they can.
    """
    place = 0
    for number, event in enumerate(events):
        if event.after is not None:
            place = _place_of(event.after, own, forms, place)
        elif not _fits(event, forms[own[place]]):
            later = (each for each in range(place + 1, len(own)) if _fits(event, forms[own[each]]))
            place = next(later, place)
        if place < 0:
            problems.append(f"{name}[{number}] is of no form that the table had, or of an earlier one: {event}")
            return
        by_form[own[place]].append(event)


def _place_of(after: Mapping[str, Any], own: Sequence[int], forms: Sequence[Form], place: int) -> int:
    """Where the form is that has these columns at the number in `v`; -1 if there is none."""
    for each in range(len(own) - 1, place - 1, -1):
        form = forms[own[each]]
        v = after.get(form.columns[_V].name)
        if list(after) == [column.name for column in form.columns] and v is not None and v >= form.since:
            return each
    return -1


def _fits(event: Event, form: Form) -> bool:
    """Whether a delete or a tombstone may be of this form."""
    before = event.value["before"] if event.value is not None else None
    if before is not None and list(before) != [column.name for column in form.columns]:
        return False
    return set(event.key) == {column.name for column in form.key_columns}


class _Table:
    """Rows of one table, through all its forms."""

    def __init__(self, database: Database, problems: list[str]) -> None:
        self._database = database
        self._problems = problems
        self._form: Form | None = None
        self._tombstone: Key | None = None
        """The key of the tombstone that has to come next."""
        self._left: dict[Key, Row] = {}
        """Rows whose key has changed, until they are there again."""
        self.rows: dict[Key, Row] = {}

    def take_form(self, form: Form) -> None:
        """Do to the rows what the statement did that changed the table."""
        before, self._form = self._form, form
        if before is None:
            return
        kinds = {each.number: each.kind for each in before.columns}
        rows = [
            {
                column.number: grown(self._database, kinds[column.number], column.kind, row[column.number])
                if column.number in kinds
                else column.default
                for column in form.columns
            }
            for row in self.rows.values()
        ]
        self.rows = {tuple(row[number] for number in form.key): row for row in rows}

    def take(self, event: Event) -> None:
        """Apply an event, and note what cannot be."""
        assert self._form is not None
        form = self._form
        if set(event.key) != {each.name for each in form.key_columns}:
            self._complain(event, f"its key has other columns than {[each.name for each in form.key_columns]}")
            return
        key = tuple(event.key[each.name] for each in form.key_columns)
        if self._tombstone is not None and (event.op is not None or key != self._tombstone):
            self._complain(event, f"a tombstone of {self._tombstone} was to come before it")
        if event.op is None:
            if self._tombstone is None:
                self._complain(event, "a tombstone without a delete")
            self._tombstone = None
        elif event.op == "d":
            self._deleted(event, key)
        else:
            self._written(event, key)

    def end(self) -> None:
        """No event of this form is left."""
        if self._tombstone is not None:
            self._problems.append(f"{self._name}: no tombstone of {self._tombstone} follows its delete")
            self._tombstone = None

    def _deleted(self, event: Event, key: Key) -> None:
        self._tombstone = key
        row = self.rows.pop(key, None)
        if row is None:
            self._complain(event, "a delete of a row that is not there")
        else:
            self._left[key] = row
            self._compare_before(event, row)

    def _written(self, event: Event, key: Key) -> None:
        assert self._form is not None
        assert event.after is not None
        row = {each.number: event.after[each.name] for each in self._form.columns}
        before = self.rows.get(key)
        if event.op == "u":
            if before is None:
                self._complain(event, "a change of a row that is not there")
            else:
                row = {number: before.get(number) if value == UNAVAILABLE else value for number, value in row.items()}
                self._compare_before(event, before)
        elif before is not None:
            self._complain(event, "a row comes that is there")
        if event.old_key is not None:
            before = self._left.pop(tuple(event.old_key[each.name] for each in self._form.key_columns), None)
            if before is not None:
                row = {number: before.get(number) if value == UNAVAILABLE else value for number, value in row.items()}
        changes = 0 if before is None else before[_N] + 1
        if event.op != "r" and row[_N] != changes:
            self._complain(event, f"change {row[_N]} of its row, and {changes} was to come")
        if before is not None and row[_V] <= before[_V]:
            self._complain(event, f"by statement {row[_V]}, which is not after {before[_V]}")
        if tuple(row[number] for number in self._form.key) != key:
            self._complain(event, "its key is not that of its row")
        self.rows[key] = row

    def _compare_before(self, event: Event, row: Row) -> None:
        assert self._form is not None
        assert event.value is not None
        before = event.value["before"]
        if not self._form.whole_before or before is None:
            return
        unlike = {each.name for each in self._form.columns if before.get(each.name) != row.get(each.number)}
        if unlike:
            self._complain(event, f"before it the row was another one, by {unlike}")

    @property
    def _name(self) -> str:
        assert self._form is not None
        return f"{self._form.name} (table {self._form.lineage}, as since statement {self._form.since})"

    def _complain(self, event: Event, what: str) -> None:
        self._problems.append(f"{self._name}: {what}: {str(event)[:600]}")
