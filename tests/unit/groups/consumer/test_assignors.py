"""Assignors: everything is assigned once, to subscribers, evenly; nothing moves without need; racks where they can."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consumer_members import make_topic, topic_id

from ottla.groups.consumer.assignors import ASSIGNORS, AssignmentProblem, Subscriber, assign_ranges, assign_uniformly
from ottla.groups.consumer.events import Partitions
from ottla.groups.topics import Topic
from ottla.ids import InstanceId, MemberId, TopicId

T, U = topic_id("t"), topic_id("u")


def topics(**sizes: int) -> dict[TopicId, Topic]:
    made = [make_topic(name, size) for name, size in sizes.items()]
    return {topic.topic_id: topic for topic in made}


def members(**subscribers: Subscriber) -> dict[MemberId, Subscriber]:
    return {MemberId(name): subscriber for name, subscriber in subscribers.items()}


def loads(assignment: Mapping[MemberId, Partitions]) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assignment.items()}


def kept(problem: AssignmentProblem, assignment: Mapping[MemberId, Partitions]) -> int:
    return sum(
        len(indexes & assignment[member].get(topic, frozenset()))
        for member, subscriber in problem.subscribers.items()
        for topic, indexes in subscriber.target.items()
    )


# --- range -------------------------------------------------------------------------------------------------------


def test_ranges_of_topics_alike_in_size_go_together() -> None:
    both = Subscriber(frozenset({T, U}))
    assignment = assign_ranges(AssignmentProblem(members(b=both, a=both), topics(t=3, u=3)))
    assert assignment[MemberId("a")] == {T: {0, 1}, U: {0, 1}}
    assert assignment[MemberId("b")] == {T: {2}, U: {2}}


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    one = frozenset({T})
    everybody = members(a=Subscriber(one), z=Subscriber(one, InstanceId("1")), y=Subscriber(one, InstanceId("2")))
    assignment = assign_ranges(AssignmentProblem(everybody, topics(t=3)))
    assert assignment == {"z": {T: {0}}, "y": {T: {1}}, "a": {T: {2}}}


def test_a_topic_is_divided_among_those_who_read_it() -> None:
    everybody = members(a=Subscriber(frozenset({T})), b=Subscriber(frozenset({T, U})), c=Subscriber(frozenset()))
    assignment = assign_ranges(AssignmentProblem(everybody, topics(t=3, u=2)))
    assert assignment == {"a": {T: {0, 1}}, "b": {T: {2}, U: {0, 1}}, "c": {}}


# --- uniform -----------------------------------------------------------------------------------------------------


def test_loads_of_equal_members_differ_by_one_at_most() -> None:
    both = Subscriber(frozenset({T, U}))
    assignment = assign_uniformly(AssignmentProblem(members(a=both, b=both, c=both), topics(t=4, u=4)))
    assert sorted(loads(assignment).values()) == [2, 3, 3]


def test_a_newcomer_gets_its_share_and_nobody_else_anything() -> None:
    one = frozenset({T})
    everybody = members(
        a=Subscriber(one, target={T: frozenset({0, 2, 4})}),
        b=Subscriber(one, target={T: frozenset({1, 3, 5})}),
        c=Subscriber(one),
    )
    problem = AssignmentProblem(everybody, topics(t=6))
    assignment = assign_uniformly(problem)
    assert loads(assignment) == {"a": 2, "b": 2, "c": 2}
    assert kept(problem, assignment) == 4


def test_who_keeps_everything_is_given_the_same_object() -> None:
    target: Partitions = {T: frozenset({0, 1})}
    problem = AssignmentProblem(members(a=Subscriber(frozenset({T}), target=target)), topics(t=2))
    assert assign_uniformly(problem)[MemberId("a")] is target


def test_what_is_subscribed_to_no_more_and_what_is_gone_is_let_go() -> None:
    target: Partitions = {T: frozenset({0, 7}), U: frozenset({0})}
    problem = AssignmentProblem(members(a=Subscriber(frozenset({T}), target=target)), topics(t=1))
    assert assign_uniformly(problem) == {"a": {T: {0}}}


def test_a_partition_that_two_were_to_have_goes_to_one() -> None:
    target: Partitions = {T: frozenset({0})}
    one = Subscriber(frozenset({T}), target=target)
    assert loads(assign_uniformly(AssignmentProblem(members(a=one, b=one), topics(t=1)))) == {"a": 1, "b": 0}


def test_who_reads_another_topic_too_gets_less_of_the_first() -> None:
    everybody = members(
        a=Subscriber(frozenset({T}), target={T: frozenset(range(6))}),
        b=Subscriber(frozenset({T, U})),
        c=Subscriber(frozenset({U})),
    )
    load = loads(assign_uniformly(AssignmentProblem(everybody, topics(t=6, u=6))))
    assert sum(load.values()) == 12
    assert max(abs(load["a"] - load["b"]), abs(load["b"] - load["c"])) <= 1


def test_partitions_go_to_members_in_a_rack_that_has_them() -> None:
    topic = make_topic("t", [("x",), ("y",), ("x",), ("y",), ("z",)])
    one = frozenset({T})
    everybody = members(a=Subscriber(one, rack_id="y"), b=Subscriber(one, rack_id="x"))
    assignment = assign_uniformly(AssignmentProblem(everybody, {T: topic}))
    assert assignment[MemberId("a")][T] >= {1, 3}
    assert assignment[MemberId("b")][T] >= {0, 2}


def test_what_moves_moves_where_a_replica_is() -> None:
    topic = make_topic("t", [("y",), ("x",), ("x",), ("y",)])
    one = frozenset({T})
    everybody = members(a=Subscriber(one, rack_id="x", target={T: frozenset(range(4))}), b=Subscriber(one, rack_id="y"))
    assert assign_uniformly(AssignmentProblem(everybody, {T: topic}))[MemberId("b")] == {T: {0, 3}}


def test_balance_comes_before_racks() -> None:
    topic = make_topic("t", [("x",)] * 4)
    one = frozenset({T})
    everybody = members(a=Subscriber(one, rack_id="x"), b=Subscriber(one, rack_id="y"))
    assert loads(assign_uniformly(AssignmentProblem(everybody, {T: topic}))) == {"a": 2, "b": 2}


# --- both --------------------------------------------------------------------------------------------------------

NAMES = ["t", "u", "v"]
RACKS = st.sampled_from([None, "x", "y"])


@st.composite
def problems(draw: st.DrawFn) -> AssignmentProblem:
    made: dict[TopicId, Topic] = {}
    for name in NAMES:
        racks = draw(st.lists(st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple), min_size=1, max_size=9))
        made[topic_id(name)] = make_topic(name, racks)
    every = [(made_id, index) for made_id, topic in made.items() for index in range(topic.partition_count)]
    count = draw(st.integers(1, 6))
    owners = draw(st.lists(st.integers(-1, count - 1), min_size=len(every), max_size=len(every)))
    alike = draw(st.booleans())
    shared = frozenset(draw(st.sets(st.sampled_from(sorted(made)))))
    subscribers: dict[MemberId, Subscriber] = {}
    for number in range(count):
        target: dict[TopicId, frozenset[int]] = {}
        for (topic, index), owner in zip(every, owners, strict=True):
            if owner == number:
                target[topic] = target.get(topic, frozenset()) | {index}
        reads = shared if alike else frozenset(draw(st.sets(st.sampled_from(sorted(made)))))
        subscribers[MemberId(f"m{number}")] = Subscriber(reads, None, draw(RACKS), target)
    read = frozenset().union(*(subscriber.topics for subscriber in subscribers.values()))
    return AssignmentProblem(subscribers, {made_id: topic for made_id, topic in made.items() if made_id in read})


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@settings(max_examples=40)
@given(problem=problems())
def test_every_partition_goes_to_exactly_one_subscriber(assignor: str, problem: AssignmentProblem) -> None:
    assignment = ASSIGNORS[assignor](problem)
    assert set(assignment) == set(problem.subscribers)
    given_out: Counter[tuple[TopicId, int]] = Counter()
    for member, partitions in assignment.items():
        assert set(partitions) <= problem.subscribers[member].topics
        assert all(partitions.values()), "a topic without partitions"
        given_out.update((topic, index) for topic, indexes in partitions.items() for index in indexes)
    assert given_out == Counter(
        (topic.topic_id, index) for topic in problem.topics.values() for index in range(topic.partition_count)
    )


@settings(max_examples=40)
@given(problem=problems())
def test_uniform_loads_are_even_wherever_subscriptions_allow(problem: AssignmentProblem) -> None:
    assignment = assign_uniformly(problem)
    load = loads(assignment)
    for member, partitions in assignment.items():
        for other, subscriber in problem.subscribers.items():
            if partitions.keys() & subscriber.topics:
                assert load[member] - load[other] <= 1, f"{member} could give {other} something"


@settings(max_examples=40)
@given(problem=problems())
def test_an_even_assignment_stays_as_it_is(problem: AssignmentProblem) -> None:
    first = assign_uniformly(problem)
    again = {member: old._replace(target=first[member]) for member, old in problem.subscribers.items()}
    assert assign_uniformly(problem._replace(subscribers=again)) == first


@settings(max_examples=40)
@given(problem=problems())
def test_equal_members_keep_all_that_balance_lets_them_keep(problem: AssignmentProblem) -> None:
    subscribers = list(problem.subscribers.values())
    if any(subscriber.topics != subscribers[0].topics for subscriber in subscribers):
        return
    total = sum(topic.partition_count for topic in problem.topics.values())
    least, more = divmod(total, len(subscribers))
    had = sorted(
        (
            sum(len(indexes) for topic, indexes in subscriber.target.items() if topic in subscriber.topics)
            for subscriber in subscribers
        ),
        reverse=True,
    )
    most_kept = sum(min(count, least + (place < more)) for place, count in enumerate(had))
    assert kept(problem, assign_uniformly(problem)) == most_kept
