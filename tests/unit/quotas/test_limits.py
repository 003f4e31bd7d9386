"""Which quota holds for which client, and how many users of quotas are remembered."""

from itertools import combinations

import pytest

from ottla.cluster.entity_names import DEFAULT
from ottla.cluster.image import ResourceType
from ottla.quotas.entities import Entity
from ottla.quotas.limits import ClientLimits, Limit, concerns_quotas, read_limits
from ottla.quotas.rates import TokenBucket, Window
from ottla.quotas.usage import EXPIRED_AT_ONCE, LONGEST_NAME, Meters, key_of

U, C, D = "alice", "app", DEFAULT
PRECEDENCE = [
    ((U, C), (U, C)),
    ((U, D), (U, C)),
    ((U, None), (U, None)),
    ((D, C), (U, C)),
    ((D, D), (U, C)),
    ((D, None), (U, None)),
    ((None, C), (None, C)),
    ((None, D), (None, C)),
]
"""Keys in Kafka's order, and the users of each."""


def test_the_first_that_is_set_holds() -> None:
    """All 255 sets of quotas."""
    for size in range(1, len(PRECEDENCE) + 1):
        for chosen in combinations(enumerate(PRECEDENCE), size):
            limits = ClientLimits({key: float(number) for number, (key, _) in chosen})
            number, (_, used_by) = chosen[0]
            assert limits.of(U, C) == Limit(float(number), Entity(*used_by))


def test_users_of_a_quota_have_it_however_it_is_set() -> None:
    limits = ClientLimits({(U, D): 1.0, (D, None): 2.0, (None, C): 3.0})
    for used_by in (Entity(U, C), Entity("bob"), Entity(client_id=C)):
        assert limits.has(used_by)
    for used_by in (Entity("bob", C), Entity(client_id="other")):
        assert not limits.has(used_by)


def test_others_have_none() -> None:
    limits = ClientLimits({(U, C): 1.0, (U, None): 2.0, (None, C): 3.0})
    assert limits.of("bob", "other") is None
    assert limits.of("bob", C) == Limit(3.0, Entity(None, C))
    assert limits.of(U, "other") == Limit(2.0, Entity(U, None))


def test_a_client_without_an_id_has_no_quota_for_client_ids() -> None:
    limits = ClientLimits({(U, D): 1.0, (D, D): 2.0, (None, D): 3.0, (D, None): 4.0})
    assert limits.of(U, "") == Limit(4.0, Entity(U, None))
    assert ClientLimits({(None, D): 3.0, (D, D): 1.0}).of(U, "") is None


def test_quotas_are_read_from_settings() -> None:
    complaints: list[str] = []
    limits = read_limits(
        {
            (ResourceType.USER, U): {"producer_byte_rate": "10", "SCRAM-SHA-256": "salt=x"},
            (ResourceType.USER_CLIENT, "alice/clients/%3Cdefault%3E"): {"request_percentage": "1.5"},
            (ResourceType.USER_CLIENT, "<default>/clients/a%20b"): {"request_percentage": "2.5"},
            (ResourceType.CLIENT, D): {"consumer_byte_rate": "none"},
            (ResourceType.CLIENT, "zero"): {"consumer_byte_rate": "0"},
            (ResourceType.IP, "10.0.0.1"): {"connection_creation_rate": "7"},
            (ResourceType.IP, D): {"connection_creation_rate": "8"},
            (ResourceType.TOPIC, "t"): {"producer_byte_rate": "1"},
        },
        complaints.append,
    )
    assert limits.addresses == {"10.0.0.1": 7.0, DEFAULT: 8.0}
    assert set(limits.clients) == {"producer_byte_rate", "request_percentage"}
    assert limits.clients["producer_byte_rate"].of(U, C) == Limit(10.0, Entity(U, None))
    assert limits.clients["request_percentage"].of(U, "<default>") == Limit(1.5, Entity(U, "<default>"))
    assert limits.clients["request_percentage"].of("bob", "a b") == Limit(2.5, Entity("bob", "a b"))
    assert len(complaints) == 2


def test_changes_of_other_settings_are_passed_over() -> None:
    topic = {(ResourceType.TOPIC, "t"): {"retention.ms": "1"}}
    user = {(ResourceType.USER, "u"): {"producer_byte_rate": "1"}}
    assert not concerns_quotas({}, topic)
    assert concerns_quotas(topic, {**topic, **user})
    assert not concerns_quotas({**topic, **user}, user)


def meters(most: int) -> Meters:
    window = Window(11, 1000)
    return Meters(lambda: TokenBucket(window), window.idle_after_ms, most)


def test_invented_ids_do_not_pile_up() -> None:
    kept = meters(100)
    for number in range(10_000):
        kept.of(number, 1.0, number).add(100, number)
        assert len(kept) <= 100
    assert [key for key, _ in kept.in_use(10_000)] == list(range(9_900, 10_000))


def test_idle_ones_go_while_others_come() -> None:
    kept = meters(10_000)
    for number in range(1000):
        kept.of(number, 1.0, 0)
    for number in range(1000):
        kept.of(f"later {number}", 1.0, 60_000)
    assert len(kept) == 1000
    assert EXPIRED_AT_ONCE > 1, "or they would never get fewer"


def test_one_that_has_to_wait_is_not_forgotten_for_being_idle() -> None:
    kept = meters(100)
    kept.of("in debt", 1.0, 0).add(1_000, 0)
    for at in range(0, 900_000, 10_000):
        kept.of(at, 1.0, at)
    assert kept.of("in debt", 1.0, 900_000).excess_ms(900_000) == 90_000


def test_one_in_use_is_remembered_and_its_limit_follows() -> None:
    kept = meters(100)
    first = kept.of("a", 1.0, 0)
    for at in range(0, 100_000, 1000):
        kept.of(at, 1.0, at)
        assert kept.of("a", 2.0, at) is first
    assert first.limit == 2.0


@pytest.mark.parametrize("end", ["x", "y"])
def test_long_names_take_little_memory_and_stay_apart(end: str) -> None:
    long, other = "n" * 30_000, "n" * 30_000 + end
    key = key_of(Limit(1.0, Entity(long, other)))
    assert key.user is not None
    assert key.client_id is not None
    assert len(key.client_id) < LONGEST_NAME + 30
    assert key.user != key.client_id
    assert key_of(Limit(1.0, Entity(U, C))) == Entity(U, C)
