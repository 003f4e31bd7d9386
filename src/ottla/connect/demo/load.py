"""What changes the shop while the demo runs."""

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from ottla.connect.demo.postgres import Postgres
from ottla.connect.demo.shop import SHOP, Changes

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection  # noqa: N812 - a class

_PER_TRANSACTION: Final = 10
_AWAY_S: Final = 0.1


class Load:
    """Makes so many changes of rows, so many a second, for as long as the block lasts at most.

    While the database is away it waits; a transaction that was cut off is another one afterwards.
    """

    def __init__(self, server: Postgres, changes: int, rate: float) -> None:
        self.total = changes
        self.made: Counter[str] = Counter()
        """Rows that were inserted, updated and deleted by transactions that have ended well."""
        self.failure: Exception | None = None
        self._server, self._rate = server, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="load", daemon=True)

    @property
    def done(self) -> int:
        return sum(self.made.values())

    @property
    def is_over(self) -> bool:
        """Whether all changes are made. Raises what ended it before."""
        if self.failure is not None:
            raise self.failure
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _main(self) -> None:
        try:
            self._change()
        except Exception as failure:
            self.failure = failure

    def _change(self) -> None:
        import psycopg2

        changes = Changes(seed=7)
        connection: Connection | None = None
        next_at = time.monotonic()
        while not self._stop.is_set() and self.done < self.total:
            try:
                connection = connection or self._server.connect(SHOP)
                made = _transaction(connection, changes)
            except psycopg2.Error:
                if connection is not None and not connection.closed:
                    raise
                connection = None  # the server is killed, or comes back
                self._stop.wait(_AWAY_S)
                next_at = time.monotonic()
            else:
                self.made.update(made)
                next_at += made.total() / self._rate
                self._stop.wait(max(0.0, next_at - time.monotonic()))
        if connection is not None:
            connection.close()


def _transaction(connection: "Connection", changes: Changes) -> Counter[str]:
    """A few changes at once; none of them if they are rolled back."""
    made: Counter[str] = Counter()
    with connection.cursor() as cursor:
        for _ in range(_PER_TRANSACTION):
            change = changes.next()
            cursor.execute(change.statement, change.parameters)
            made[change.kind] += cursor.rowcount
    if changes.is_undone():
        connection.rollback()
        return Counter()
    connection.commit()
    return made
