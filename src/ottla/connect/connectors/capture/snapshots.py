"""PURE: the records of a snapshot in batches, with Debezium's marks: which is the first and which the last, of a table
and of all.
"""

import difflib
from collections.abc import Generator, Iterable, Sequence

from ottla.connect.api import ConfigError, SourceRecord


def mark(record: SourceRecord, which: str) -> None:
    """Say which of the snapshot's records this is; the block is shared until then."""
    record.value["source"] = {**record.value["source"], "snapshot": which}


def table_batches(
    records: Iterable[SourceRecord], most: int, *, first: bool
) -> Generator[list[SourceRecord], None, int]:
    """Batches of at most so many of a table's records; returns how many these are. `first`: no table was before it."""
    done = 0
    batch: list[SourceRecord] = []
    for record in records:
        done += 1
        if done == 1:
            mark(record, "first" if first else "first_in_data_collection")
        batch.append(record)
        if len(batch) > most:
            yield batch[:-1]
            batch = batch[-1:]
    if batch:
        if not first or done > 1:
            mark(batch[-1], "last_in_data_collection")
        yield batch
    return done


def without_last(batches: Iterable[list[SourceRecord]]) -> Generator[list[SourceRecord], None, SourceRecord | None]:
    """All but the last record, which is returned: it gets a mark and a position of its own. None: there was none."""
    last: SourceRecord | None = None
    for batch in batches:
        if last is not None:
            batch.insert(0, last)
        last = batch.pop()
        if batch:
            yield batch
    return last


def nothing_fits(include: Sequence[str], names: Iterable[str], where: str, form: str) -> ConfigError:
    """What to say when `table.include.list` fits none of these tables of `where`. form: of their names."""
    near = difflib.get_close_matches(include[0].replace("\\", ""), list(names), 1)
    return ConfigError(
        f"table.include.list fits no table of {where}"
        + (f": is it {near[0]}?" if near else f", or none that exists yet: names are {form}"),
        "table.include.list",
    )
