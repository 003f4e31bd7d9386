"""Quotas beside what is used of them, and the search among rows."""

from ottla.admin import EntityQuotas, QuotaEntity, QuotaUse
from ottla.console.security import Answer, matching, quota_rows

ALICE = QuotaEntity(user="alice")


def test_the_largest_use_stands_beside_its_quota() -> None:
    listed = [EntityQuotas(ALICE, {"producer_byte_rate": 100.0, "consumer_byte_rate": 50.0})]
    used = [QuotaUse(broker, ALICE, "producer_byte_rate", 100.0, rate, 5) for broker, rate in ((1, 20.0), (2, 90.0))]
    consumer, producer = quota_rows(listed, used)
    assert (consumer.used, consumer.throttled_ms) == (None, 0)
    assert (producer.entity, producer.used) == ("user 'alice'", 90.0)


def test_rows_are_found_by_any_cell() -> None:
    answer = Answer([("alice", 1), ("Bob", 20)], "")
    assert matching(answer, "bo").rows == [("Bob", 20)]
    assert matching(answer, "1").rows == [("alice", 1)]
