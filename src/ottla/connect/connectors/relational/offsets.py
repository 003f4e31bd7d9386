"""Offsets kept in the target, in the transactions of the rows: what makes a sink exactly once.

Each transaction begins by moving the offset to where it ends. If it was beyond the batch's first record, another task
has written since, and what it wrote is not written again.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.connect.api import Retriable, TopicPartition
from ottla.connect.connectors.relational.columns import key_text
from ottla.connect.connectors.relational.tables import split_name

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


_LONGEST_CONNECTOR: Final = 190
_LONGEST_TOPIC: Final = 249


class Offsets:
    """The offset of the next record, for each partition that a connector reads."""

    def __init__(self, table: str, connector: str) -> None:
        self._connector = connector
        self._table = _table(table)
        self._stored: dict[TopicPartition, int] = {}

    def prepare(self, connection: "Connection", partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Those that are kept, after making the table if it is not there."""
        from sqlalchemy import select

        self._make(connection)
        columns = self._table.c
        query = select(columns.topic, columns.partition, columns.next_offset).where(
            columns.connector == self._connector
        )
        found = {TopicPartition(row.topic, row.partition): row.next_offset for row in connection.execute(query)}
        self._stored = {each: found[each] for each in partitions if each in found}
        return dict(self._stored)

    def _make(self, connection: "Connection") -> None:
        """Make the table if it is not there; its texts are names that may differ in case alone."""
        self._table.c.connector.type = key_text(_LONGEST_CONNECTOR, connection.dialect)
        self._table.c.topic.type = key_text(_LONGEST_TOPIC, connection.dialect)
        self._table.create(connection, checkfirst=True)

    def move(self, connection: "Connection", ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Note where partitions are after this transaction.

        Returns where they were before it: records below that are written already. Whoever else writes them waits for
        the end of this transaction. Raises Retriable if somebody has put one back since this task moved it: it is
        not for a task that should have ended to move it again.
        """
        from sqlalchemy import insert, select, update

        columns = self._table.c
        before = {}
        for partition, end in sorted(ends.items()):
            of_this = (
                columns.connector == self._connector,
                columns.topic == partition.topic,
                columns.partition == partition.partition,
            )
            row = connection.execute(select(columns.next_offset).where(*of_this).with_for_update()).first()
            before[partition] = row.next_offset if row is not None else 0
            if before[partition] < self._stored.get(partition, 0):
                raise Retriable(
                    f"the offset of {partition.topic}-{partition.partition} in table {self._table.name} was changed by "
                    "somebody else"
                )
            if row is None:
                key = {"connector": self._connector, "topic": partition.topic, "partition": partition.partition}
                connection.execute(insert(self._table).values(next_offset=end, **key))
            elif row.next_offset < end:
                connection.execute(update(self._table).where(*of_this).values(next_offset=end))
        return before

    def moved(self, ends: Mapping[TopicPartition, int]) -> None:
        """The transaction of such a `move` has ended well."""
        for partition, end in ends.items():
            self._stored[partition] = max(end, self._stored.get(partition, 0))

    def alter(self, connection: "Connection", offsets: Mapping[TopicPartition, int | None] | None) -> None:
        """Keep these instead; None: none of that partition, or of any."""
        from sqlalchemy import delete, insert

        self._make(connection)
        columns = self._table.c
        of_connector = columns.connector == self._connector
        if offsets is None:
            connection.execute(delete(self._table).where(of_connector))
            return
        for partition, offset in offsets.items():
            key = {"connector": self._connector, "topic": partition.topic, "partition": partition.partition}
            of_this = (columns.topic == partition.topic, columns.partition == partition.partition)
            connection.execute(delete(self._table).where(of_connector, *of_this))
            if offset is not None:
                connection.execute(insert(self._table).values(next_offset=offset, **key))


def _table(name: str) -> "Table":
    from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

    schema, table = split_name(name)
    return Table(
        table,
        MetaData(),
        Column("connector", String(_LONGEST_CONNECTOR), primary_key=True),
        Column("topic", String(_LONGEST_TOPIC), primary_key=True),
        Column("partition", Integer, primary_key=True, autoincrement=False),
        Column("next_offset", BigInteger, nullable=False),
        schema=schema,
    )
