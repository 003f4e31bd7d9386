"""What happens in the demo's shop, and how its report is judged."""

from decimal import Decimal

from ottla.connect.demo.shop import Changes, compare

ROW = (1, "customer 1", "east", 3, 1, Decimal("10.50"))


def test_what_happens_follows_from_the_seed() -> None:
    one, same, other = Changes(7), Changes(7), Changes(8)
    happened = [one.next() for _ in range(500)]
    assert happened == [same.next() for _ in range(500)]
    assert happened != [other.next() for _ in range(500)]


def test_rows_of_both_tables_are_inserted_updated_and_deleted() -> None:
    changes = Changes(7)
    found = set()
    for _ in range(2000):
        change = changes.next()
        assert change.statement.count("%s") == len(change.parameters)
        table = "customers" if change.statement.split()[:3].count("customers") else "orders"
        found.add((change.kind, table))
    assert found == {(kind, table) for kind in ("insert", "update", "delete") for table in ("customers", "orders")}


def test_some_transactions_are_undone() -> None:
    changes = Changes(7)
    assert 20 < sum(changes.is_undone() for _ in range(1000)) < 100


def test_equal_rows_are_equal_whatever_their_order_and_the_scale_of_their_sums() -> None:
    other = (2, "customer 2", "west", 0, 0, Decimal(0))
    compared = compare([ROW, other], [(*other[:-1], Decimal("0.00")), ROW])
    assert compared.is_equal
    assert (compared.wanted, compared.equal) == (2, 2)


def test_each_difference_is_named() -> None:
    compared = compare([ROW, (2, "b"), (3, "c")], [(*ROW[:-1], Decimal("10.51")), (2, "b"), (4, "d")])
    assert not compared.is_equal
    assert (compared.wanted, compared.equal) == (3, 1)
    assert compared.differences == (
        "3 is missing",
        "4 should be gone",
        "(1, customer 1, east, 3, 1, 10.51) should be (1, customer 1, east, 3, 1, 10.50)",
    )


def test_no_rows_are_not_equal_to_some() -> None:
    assert not compare([ROW], []).is_equal
    assert not compare([], [ROW]).is_equal
