"""The demo's two databases: their tables, what happens in the shop, and the query that the report has to equal.

Nothing here asks a database: `postgres.py` does.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

SHOP: Final = "shop"
REPORTS: Final = "reports"
CUSTOMERS: Final = 1_000
ORDERS: Final = 8_000
"""Rows at the start."""

_REGIONS: Final = ("north", "east", "south", "west")
_STATUSES: Final = ("open", "paid", "shipped", "cancelled")

SHOP_TABLES: Final = """
    CREATE TABLE customers (id bigserial PRIMARY KEY, name text NOT NULL, region text NOT NULL);
    CREATE TABLE orders (
        id bigserial PRIMARY KEY,
        customer_id bigint NOT NULL REFERENCES customers ON DELETE CASCADE,
        status text NOT NULL,
        amount numeric(10, 2) NOT NULL
    );
    CREATE INDEX ON orders (customer_id);
    ALTER TABLE orders REPLICA IDENTITY FULL; -- changes carry the old row
"""
FILL: Final = f"""
    INSERT INTO customers (name, region)
        SELECT 'customer ' || n, (ARRAY{list(_REGIONS)})[1 + n % {len(_REGIONS)}]
        FROM generate_series(1, {CUSTOMERS}) n;
    INSERT INTO orders (customer_id, status, amount)
        SELECT 1 + n * 7919 % {CUSTOMERS}, (ARRAY{list(_STATUSES)})[1 + n % {len(_STATUSES)}], n * 37 % 100000 / 100.0
        FROM generate_series(1, {ORDERS}) n;
"""
REPORTS_TABLES: Final = """
    CREATE TABLE sales (
        id bigint PRIMARY KEY,
        name text NOT NULL,
        region text NOT NULL,
        orders bigint NOT NULL,
        open_orders bigint NOT NULL,
        spent numeric(14, 2) NOT NULL
    );
"""
WANTED: Final = """
    SELECT c.id, c.name, c.region, count(o.id), count(o.id) FILTER (WHERE o.status = 'open'),
        coalesce(sum(o.amount) FILTER (WHERE o.status <> 'cancelled'), 0)
    FROM customers c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id
"""
"""Over the shop: what the table `sales` of the other database has to hold, row for row."""
FOUND: Final = "SELECT id, name, region, orders, open_orders, spent FROM sales"
BY_REGION: Final = """
    SELECT region, count(*), sum(orders)::bigint, sum(open_orders)::bigint, sum(spent) FROM sales GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes one row, its parameters, and what it does: insert, update or delete."""

    kind: str
    statement: str
    parameters: tuple[object, ...]


class Changes:
    """The events in the shop, from a seed. A deleted row is not changed again: nothing happens then."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._customers, self._orders = CUSTOMERS, ORDERS

    def next(self) -> Change:
        """Draw the next change, at random."""
        dice = self._dice
        happens = dice.choices(self._EVENTS, self._SHARES)[0]
        return happens(self)

    def is_undone(self) -> bool:
        """Whether the transaction is rolled back: one in twenty."""
        return self._dice.random() < 0.05

    def _new_order(self) -> Change:
        self._orders += 1
        sql = "INSERT INTO orders (customer_id, status, amount) SELECT id, 'open', %s FROM customers WHERE id = %s"
        return Change("insert", sql, (self._amount(), self._customer()))

    def _new_status(self) -> Change:
        sql = "UPDATE orders SET status = %s WHERE id = %s"
        return Change("update", sql, (self._dice.choice(_STATUSES), self._order()))

    def _new_amount(self) -> Change:
        return Change("update", "UPDATE orders SET amount = %s WHERE id = %s", (self._amount(), self._order()))

    def _other_customer(self) -> Change:
        sql = "UPDATE orders SET customer_id = c.id FROM customers c WHERE c.id = %s AND orders.id = %s"
        return Change("update", sql, (self._customer(), self._order()))

    def _no_order(self) -> Change:
        return Change("delete", "DELETE FROM orders WHERE id = %s", (self._order(),))

    def _new_customer(self) -> Change:
        self._customers += 1
        region = self._dice.choice(_REGIONS)
        sql = "INSERT INTO customers (name, region) VALUES (%s, %s)"
        return Change("insert", sql, (f"customer {self._customers}", region))

    def _moves(self) -> Change:
        sql = "UPDATE customers SET region = %s WHERE id = %s"
        return Change("update", sql, (self._dice.choice(_REGIONS), self._customer()))

    def _no_customer(self) -> Change:
        return Change("delete", "DELETE FROM customers WHERE id = %s", (self._customer(),))  # with all their orders

    def _customer(self) -> int:
        return self._dice.randint(1, self._customers)

    def _order(self) -> int:
        return self._dice.randint(1, self._orders)

    def _amount(self) -> str:
        return f"{self._dice.randrange(100, 100_000) / 100:.2f}"

    _EVENTS: Final = (
        _new_order, _new_status, _new_amount, _other_customer, _no_order, _new_customer, _moves, _no_customer
    )  # fmt: skip
    _SHARES: Final = (40, 25, 10, 5, 12, 4, 3, 1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that are as wanted, and in words the first of those that are not."""

    wanted: int
    equal: int
    differences: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        return not self.differences and self.equal == self.wanted


def compare(wanted: Iterable[tuple[Any, ...]], found: Iterable[tuple[Any, ...]]) -> Comparison:
    """Two lists of rows; the first column of each is its key. All differences are in the result."""
    of_wanted, of_found = {row[0]: row for row in wanted}, {row[0]: row for row in found}
    differences = [f"{key} is missing" for key in sorted(of_wanted.keys() - of_found.keys())]
    differences += [f"{key} should be gone" for key in sorted(of_found.keys() - of_wanted.keys())]
    both = sorted(of_wanted.keys() & of_found.keys())
    changed = [key for key in both if of_wanted[key] != of_found[key]]
    differences += [f"{_words(of_found[key])} should be {_words(of_wanted[key])}" for key in changed]
    return Comparison(len(of_wanted), len(both) - len(changed), tuple(differences))


def _words(row: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, row))})"
