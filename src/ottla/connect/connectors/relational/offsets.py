"""Offsets kept in the target, in the transactions of the rows: what makes a sink exactly once.

Each transaction begins by moving the offset to where it ends. If it was beyond the batch's first record, another task
has written since, and what it wrote is not written again. Beside each offset are the ids of the cluster and the topic;
rows of a table that was made before there were such columns have none until they are moved.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import KeptOffset, LogIdentity, Retriable, TopicPartition
from ottla.connect.connectors.relational.mapping.columns import key_text
from ottla.connect.connectors.relational.mapping.names import split_name
from ottla.connect.log_identity import check_same_log

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table


_LONGEST_CONNECTOR: Final = 190
_LONGEST_TOPIC: Final = 249
_LONGEST_ID: Final = 64
_IDS: Final = ("cluster_id", "topic_id")


class Offsets:
    """The offset of the next record, for each partition that a connector reads. identify: what a topic is now."""

    def __init__(self, table: str, connector: str, identify: Callable[[str], LogIdentity]) -> None:
        self._connector, self._identify = connector, identify
        self._table = _table(table)
        self._stored: dict[TopicPartition, int] = {}

    def prepare(self, connection: "Connection", partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Those that are kept, after making the table if it is not there."""
        from sqlalchemy import select

        self._make(connection)
        columns = self._table.c
        query = select(columns.topic, columns.partition, columns.next_offset, columns.cluster_id, columns.topic_id)
        found = {
            TopicPartition(row.topic, row.partition): KeptOffset(row.next_offset, _log_of(row))
            for row in connection.execute(query.where(columns.connector == self._connector))
        }
        kept = {each: found[each] for each in partitions if each in found}
        self._stored = {each: int(offset) for each, offset in kept.items()}
        return dict(kept)

    def _make(self, connection: "Connection") -> None:
        """Make the table if it is not there, or add the columns that it lacks; its texts may differ in case alone."""
        from sqlalchemy import inspect
        from sqlalchemy.schema import CreateColumn

        table = self._table
        table.c.connector.type = key_text(_LONGEST_CONNECTOR, connection.dialect)
        table.c.topic.type = key_text(_LONGEST_TOPIC, connection.dialect)
        for name in _IDS:
            table.c[name].type = key_text(_LONGEST_ID, connection.dialect)
        table.create(connection, checkfirst=True)
        there = {each["name"] for each in inspect(connection).get_columns(table.name, schema=table.schema)}
        name = connection.dialect.identifier_preparer.format_table(table)
        for column in (table.c[each] for each in _IDS if each not in there):
            added = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {added}")

    def move(self, connection: "Connection", ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Note where partitions are after this transaction.

        Returns where they were before it: records below that are written already. Another writer of them waits for
        the end of this transaction. Raises Retriable if another writer has moved one back since this task moved it: a
        task
        that should have ended must not move it again. Raises ConnectError if it is of another log.
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
            log = self._identify(partition.topic)
            ids = {"cluster_id": log.cluster_id, "topic_id": log.topic_id}
            wanted = select(columns.next_offset, columns.cluster_id, columns.topic_id)
            row = connection.execute(wanted.where(*of_this).with_for_update()).first()
            before[partition] = row.next_offset if row is not None else 0
            if row is not None:
                check_same_log(partition, row.next_offset, _log_of(row), log, f"table {self._table.name}")
            if before[partition] < self._stored.get(partition, 0):
                raise Retriable(
                    f"the offset of {partition.topic}-{partition.partition} in table {self._table.name} was changed by "
                    "another writer"
                )
            if row is None:
                key = {"connector": self._connector, "topic": partition.topic, "partition": partition.partition}
                connection.execute(insert(self._table).values(next_offset=end, **key, **ids))
            elif row.next_offset < end:
                connection.execute(update(self._table).where(*of_this).values(next_offset=end, **ids))
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
        *(Column(name, String(_LONGEST_ID), nullable=True) for name in _IDS),
        schema=schema,
    )


def _log_of(row: Any) -> LogIdentity:
    return LogIdentity(row.cluster_id, row.topic_id)
