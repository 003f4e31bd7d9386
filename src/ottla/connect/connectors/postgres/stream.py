"""The replication stream: what comes, what is confirmed, and the slot that keeps it."""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg2.extras import REPLICATION_LOGICAL

from ottla.connect.api import ConnectError, Position, Retriable, SourceContext
from ottla.connect.connectors.capture.changes import Batch
from ottla.connect.connectors.capture.streaming import Arrived
from ottla.connect.connectors.postgres import slot
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.decoding.changes import Changes
from ottla.connect.connectors.postgres.decoding.pgoutput import UndecodableError, decode
from ottla.connect.connectors.postgres.session import explained
from ottla.connect.connectors.postgres.settings import PostgresSettings

_WAIT_S: Final = 0.5
_LINGER_S: Final = 0.01
"""How long to wait for more records, before the runtime learns that there are none."""
_LOOK_EVERY_S: Final = 10.0
_CONFIRM_EVERY_S: Final = 1.0
_GATHER_S: Final = 0.002
"""Time for the server to send more when something has come: it sends each change by itself, and waking costs both."""
_SAY_EVERY_S: Final = 10.0
_OWN_FEEDBACK_EVERY_S: Final = 3600
_MB: Final = 1 << 20


class Feedback:
    """Confirms flushed positions to the server, while a stream is open."""

    def __init__(self) -> None:
        self.last_start = 0
        """Where the stream has the last message that came."""
        self._stream: Any = None
        self._confirmed = 0
        self._sent = 0
        self._sent_at_s = 0.0

    def open(self, stream: Any, start: Position) -> None:
        """The stream was started there."""
        self._stream = stream
        self.last_start, self._sent, self._sent_at_s = 0, start["lsn"], time.monotonic()
        self._confirmed = max(self._confirmed, start["lsn"])
        if "transaction" not in start:  # amid one the slot may be beyond, and would be moved back
            stream.send_feedback(write_lsn=self._sent, flush_lsn=self._sent, force=True)

    def close(self) -> None:
        """No stream is open."""
        self._stream = None

    def confirm(self, lsn: int) -> None:
        """Everything before `lsn` is in the log: the server may forget it."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self.send()

    def send(self) -> None:
        """Confirm the flushed position to the server, once a second at most: it answers each with a look at its slot.

        psycopg2 adds the end of the last keepalive if everything before had been confirmed. So it is made
        to send only while that end is stored as a position, too, or while more has come than was confirmed. That
        happens often enough for the server not to request a reply itself, which psycopg2 would answer at once.
        """
        since_s = time.monotonic() - self._sent_at_s
        stream = self._stream
        if stream is None or since_s < (_SAY_EVERY_S if self._sent == self._confirmed else _CONFIRM_EVERY_S):
            return
        if stream.wal_end > self._confirmed and self._sent >= self.last_start:
            return
        self._sent, self._sent_at_s = self._confirmed, time.monotonic()
        with explained("confirming the flushed position"):
            stream.send_feedback(write_lsn=self._sent, flush_lsn=self._sent, force=True)


class SlotWatch:
    """Looks at the WAL that the slot holds back, and for tables that are not published."""

    def __init__(self, settings: PostgresSettings, context: SourceContext, connection: Any, catalog: Catalog) -> None:
        self._settings = settings
        self._context = context
        self._connection = connection
        self._catalog = catalog
        self._due_s = time.monotonic()
        self._has_warned = False

    def look(self, stream: Any) -> None:
        """Look every ten seconds. Raises ConnectError after dropping a slot that was to be dropped."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + _LOOK_EVERY_S
        settings = self._settings
        found = slot.state(self._connection, settings)
        if found is None:
            return
        if settings.slot_lag_drop_bytes and found.held_back > settings.slot_lag_drop_bytes:
            stream.connection.close()
            slot.drop(self._connection, settings.slot_name)
            raise ConnectError(
                f"slot {settings.slot_name} held back {found.held_back // _MB} MB of WAL, more than "
                f"slot.lag.drop.bytes={settings.slot_lag_drop_bytes}, and was dropped: delete the connector's offsets "
                "and restart it for a new snapshot"
            )
        had_warned, sentence = self._has_warned, self._sentence(found)
        self._has_warned = sentence is not None
        if sentence is not None or had_warned:  # a warning from elsewhere stays
            self._context.warn(sentence)

    def _sentence(self, found: slot.SlotState) -> str | None:
        settings = self._settings
        missing = slot.unpublished(self._connection, self._catalog)
        if found.held_back > settings.slot_lag_warn_bytes or found.status in ("extended", "unreserved"):
            return (
                f"slot {settings.slot_name} holds back {found.held_back // _MB} MB of the server's WAL "
                f"({found.status}): its changes are not taken as fast as they come, or a transaction is open for long"
            )
        if not missing:
            return None
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return (
            f"table {missing[0]}{more} is to be captured and is not in publication {settings.publication_name}, so "
            "that its changes do not come: ALTER PUBLICATION ... ADD TABLE, or for one that has partitions "
            "capture these, or set publish.via.partition.root=true and have the publication made anew"
        )


class ReplicationStream:
    """The changes of a slot, in batches. connection: of the replication protocol."""

    def __init__(
        self, settings: PostgresSettings, connection: Any, changes: Changes, watch: SlotWatch, feedback: Feedback
    ) -> None:
        self._settings = settings
        self._changes = changes
        self._watch = watch
        self._feedback = feedback
        self._cursor = connection.cursor()
        self._wait_s = _WAIT_S

    def start(self, start: Position, options: dict[str, str]) -> None:
        """Have the server send what comes after the position."""
        with explained(f"reading replication slot {self._settings.slot_name}"):
            self._cursor.start_replication(
                slot_name=self._settings.slot_name,
                slot_type=REPLICATION_LOGICAL,
                start_lsn=start["lsn"],
                decode=False,
                options=options,
                # psycopg2 would say by itself, before a position is stored, what keepalives say: Feedback does it
                status_interval=_OWN_FEEDBACK_EVERY_S,
            )
            self._feedback.open(self._cursor, start)

    def read(self) -> Arrived:
        """What has arrived. Earlier records are good if the stream has ended, and a stopping server may have been sent
        the confirmation of all of them.
        """
        batch: Batch = []
        broken: Retriable | None = None
        try:
            with self._reading():
                self._fill(batch)
        except Retriable as error:
            broken = error
        self._wait_s = _LINGER_S if batch else _WAIT_S
        if broken is None:
            self._watch.look(self._cursor)
        if not batch:
            progress = self._changes.caught_up(self._cursor.wal_end)
            if progress is not None:
                batch.append(progress)
        self._feedback.send()
        return Arrived(batch, broken=broken)

    def _fill(self, batch: Batch) -> None:
        """Add what has arrived, up to `max.batch.size` records; wait a little for the first of it.

        It returns after half a second also among messages without records, so that the runtime can do its part.
        """
        stream, most, take, feedback = self._cursor, self._settings.max_batch_size, self._changes.take, self._feedback
        now = time.monotonic()
        until, end = now + self._wait_s, now + _WAIT_S
        gathered = False
        while len(batch) < most:
            message = stream.read_message()
            if message is not None:
                feedback.last_start = message.data_start
                take(decode(message.payload), message.data_start, batch)
                if time.monotonic() >= end:
                    break
                continue
            if batch:
                if gathered:
                    break
                time.sleep(_GATHER_S)
                gathered = True
                continue
            # keepalives wake `select` and are no messages: without an end they would keep this up for ever
            left = until - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                break

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with explained(f"reading replication slot {self._settings.slot_name}"):
                yield
        except UndecodableError as error:
            raise ConnectError(f"replication slot {self._settings.slot_name}: {error}") from error
