"""PURE: the transaction metadata of changes (`provide.transaction.metadata`), as Debezium writes it.

    in each change   transaction {id, total_order, data_collection_order}
    in a topic of their own, when a transaction begins and when it ends
      key    {id}
      value  {status: BEGIN or END, id, event_count, data_collections: [{data_collection, event_count}], ts_ms}

Orders count from 1, all changes of the transaction and those of the same table; a changed key counts twice, as a delete
and a creation, and a tombstone not at all. At the begin both counts are null.
Source: Debezium 3.2, `io.debezium.pipeline.txmetadata` and `io.debezium.schema.SchemaFactory`.
"""

from collections.abc import Iterable
from typing import Final

from ottla.connect.api import SourceRecord
from ottla.connect.schema import INT64, STRING, array, struct

KEY: Final = struct("io.debezium.connector.common.TransactionMetadataKey", version=1, id=STRING)
_COUNT: Final = struct("event.collection", version=1, optional=True, data_collection=STRING, event_count=INT64)
VALUE: Final = struct(
    "io.debezium.connector.common.TransactionMetadataValue",
    version=1,
    status=STRING,
    id=STRING,
    event_count=INT64.as_optional(),
    data_collections=array(_COUNT, optional=True),
    ts_ms=INT64,
)


class Transactions:
    """Counts the changes of one transaction after the other. `topic`: where their begins and ends go.

    What was done of a transaction before a restart is counted again, without being handed on: so no position has to
    carry the counts.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._counts: dict[str, int] = {}
        self._total = 0

    def reset(self) -> None:
        """A transaction begins, whether or not its begin record has been sent."""
        self._counts, self._total = {}, 0

    def began(self, transaction: str, at_ms: int) -> SourceRecord:
        """The record of its begin. `at_ms`: time of its commit, in milliseconds since 1970."""
        return self._record("BEGIN", transaction, None, None, at_ms)

    def mark(self, records: Iterable[SourceRecord], collection: str, transaction: str) -> None:
        """Count the changes of a table among `records`, and write into each which one it is."""
        for record in records:
            if record.value is not None:
                self._total += 1
                self._counts[collection] = number = self._counts.get(collection, 0) + 1
                record.value["transaction"] = {
                    "id": transaction,
                    "total_order": self._total,
                    "data_collection_order": number,
                }

    def ended(self, transaction: str, at_ms: int) -> SourceRecord:
        """The record of its end, with the number of its changes."""
        counts = [{"data_collection": name, "event_count": count} for name, count in self._counts.items()]
        return self._record("END", transaction, self._total, counts, at_ms)

    def _record(
        self, status: str, transaction: str, total: int | None, counts: list[dict[str, object]] | None, at_ms: int
    ) -> SourceRecord:
        value = {
            "status": status,
            "id": transaction,
            "event_count": total,
            "data_collections": counts,
            "ts_ms": at_ms,
        }
        return SourceRecord(topic=self._topic, key={"id": transaction}, key_schema=KEY, value=value, value_schema=VALUE)
