"""The assignor of share groups: everything is read, everybody reads, little moves."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.consumer.events import Partitions
from ottla.groups.share.assignor import assign
from ottla.ids import MemberId, TopicId

TOPICS = [TopicId(UUID(int=number)) for number in range(1, 4)]
T, U, _ = TOPICS
A, B, C = (MemberId(name) for name in "abc")


def count(partitions: Partitions) -> int:
    return sum(len(indexes) for indexes in partitions.values())


def test_one_member_reads_everything() -> None:
    assignable = {T: frozenset({0, 1, 2}), U: frozenset({0})}
    assert assign({A: frozenset({T, U})}, assignable, {}) == {A: assignable}


def test_more_members_than_partitions_share_them() -> None:
    members = {MemberId(f"m{number}"): frozenset({T}) for number in range(9)}
    shares = assign(members, {T: frozenset({0})}, {})
    assert all(share == {T: frozenset({0})} for share in shares.values())


def test_two_members_read_about_as_much() -> None:
    both = {A: frozenset({T}), B: frozenset({T})}
    shares = assign(both, {T: frozenset(range(10))}, {})
    assert {count(share) for share in shares.values()} <= {4, 5, 6}
    assert shares[A][T] | shares[B][T] == frozenset(range(10))


def test_who_stays_keeps_what_is_not_too_much() -> None:
    assignable = {T: frozenset(range(8))}
    before = assign({A: frozenset({T}), B: frozenset({T})}, assignable, {})
    after = assign({member: frozenset({T}) for member in (A, B, C)}, assignable, before)
    for member in (A, B):
        assert len(after[member][T] & before[member][T]) >= 2


def test_members_get_what_they_subscribe_to() -> None:
    shares = assign({A: frozenset({T}), B: frozenset({U})}, {T: frozenset({0, 1}), U: frozenset({0})}, {})
    assert shares == {A: {T: frozenset({0, 1})}, B: {U: frozenset({0})}}


def test_topics_without_partitions_to_give_away() -> None:
    assert assign({A: frozenset({T}), B: frozenset()}, {}, {A: {T: frozenset({0})}}) == {A: {}, B: {}}
    assert assign({}, {T: frozenset({0})}, {}) == {}


MEMBERS = [MemberId(f"member-{number}") for number in range(6)]
SUBSCRIPTIONS = st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), max_size=6)
ASSIGNABLE = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 9), min_size=1), max_size=3)


@given(st.lists(st.tuples(SUBSCRIPTIONS, ASSIGNABLE), min_size=1, max_size=3), st.booleans())
def test_whatever_comes_after_whatever(
    rounds: list[tuple[dict[MemberId, frozenset[TopicId]], Partitions]], same: bool
) -> None:
    current: dict[MemberId, Partitions] = {}
    for subscriptions, assignable in rounds:
        if same:
            subscriptions = dict.fromkeys(subscriptions, frozenset(TOPICS))
        shares = assign(subscriptions, assignable, current)
        assert shares == assign(dict(reversed(subscriptions.items())), assignable, current), "an order matters"
        assert shares.keys() == subscriptions.keys()
        for member, share in shares.items():
            for topic, indexes in share.items():
                assert indexes, "a topic without partitions"
                assert topic in subscriptions[member]
                assert indexes <= assignable[topic]
            if any(topic in assignable for topic in subscriptions[member]):
                assert share, f"{member} has nothing to do"
        for topic, indexes in assignable.items():
            if any(topic in topics for topics in subscriptions.values()):
                assert frozenset().union(*(share.get(topic, frozenset()) for share in shares.values())) == indexes
        if same and subscriptions:
            fair_share = -(-count(assignable) // len(subscriptions))
            assert all(count(share) <= fair_share + 1 for share in shares.values())
        current = shares
