"""Which groups a transaction keeps waiting, and which transactions a search finds."""

from ottla.admin import HeldBack, Partition, Transaction
from ottla.console.transactions import Waiting, matching, waiting

AT = Partition("t", 0)


def test_a_group_waits_where_the_records_are_held_back_and_nowhere_else() -> None:
    behind = {AT: HeldBack(AT, 7, 7, 12, 5)}
    committed = {"here": {AT: 7}, "beyond": {AT: 9}, "before": {AT: 3}, "elsewhere": {Partition("t", 1): 7}}
    assert waiting(committed, behind) == [Waiting("here", AT, 5)]


def test_ids_are_found_by_their_text_or_their_producer() -> None:
    known = [
        Transaction(name, producer, 0, "Ongoing", 1, 1, frozenset(), 1) for name, producer in (("Pay", 7), ("x", 17))
    ]
    assert [each.transactional_id for each in matching(known, "pa")] == ["Pay"]
    assert [each.transactional_id for each in matching(known, "17")] == ["x"]
    assert len(matching(known, "")) == 2
