"""A topology held against the topics: numbers of partitions, internal topics, what does not fit."""

from uuid import UUID

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.groups.streams.configured import ConfiguredTopology, StatusCode, configure, summary
from ottla.groups.streams.topology import CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import SubtopologyId, TopicId, TopicName

S, T, R, Q, C = (TopicName(name) for name in ("s", "t", "r", "q", "c"))
ZERO, ONE, TWO = (SubtopologyId(str(number)) for number in range(3))


def fit(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    known = [Topic(TopicName(name), TopicId(UUID(int=1)), ((),) * count) for name, count in topics.items()]
    return configure(Topology(0, subtopologies), FixedTopics(known))


def problem(*subtopologies: Subtopology, **topics: int) -> tuple[StatusCode, str]:
    found = fit(*subtopologies, **topics).problem
    assert found is not None
    return found.code, found.detail


def repartition(name: TopicName, partitions: int = 0) -> InternalTopicInfo:
    return InternalTopicInfo(name, partitions)


def test_a_subtopology_has_as_many_tasks_as_its_largest_topic() -> None:
    found = fit(Subtopology(ZERO, (S, T)), s=2, t=5)
    assert (found.is_ready, found.task_counts()) == (True, {ZERO: 5})


def test_partitions_pass_through_repartition_topics() -> None:
    found = fit(
        Subtopology(TWO, repartition_source_topics=(repartition(Q),), state_changelog_topics=(repartition(C),)),
        Subtopology(ONE, repartition_source_topics=(repartition(R),), repartition_sink_topics=(Q,)),
        Subtopology(ZERO, (S,), repartition_sink_topics=(R,)),
        s=4,
    )
    assert found.task_counts() == {ZERO: 4, ONE: 4, TWO: 4}
    assert found.missing == (repartition(C, 4), repartition(Q, 4), repartition(R, 4))


def test_a_repartition_topic_may_ask_for_its_own_number() -> None:
    found = fit(
        Subtopology(ZERO, (S,), repartition_sink_topics=(R,)),
        Subtopology(ONE, repartition_source_topics=(repartition(R, 7),), state_changelog_topics=(repartition(C),)),
        s=4,
    )
    assert found.missing == (repartition(C, 7), repartition(R, 7))


def test_copartitioned_topics_follow_those_from_outside() -> None:
    joined = Subtopology(
        ONE,
        (T,),
        repartition_source_topics=(repartition(R),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    )
    found = fit(Subtopology(ZERO, (S,), repartition_sink_topics=(R,)), joined, s=2, t=6)
    assert found.missing == (repartition(R, 6),)
    assert found.task_counts() == {ZERO: 2, ONE: 6}


def test_copartitioned_topics_from_outside_are_alike() -> None:
    joined = Subtopology(ZERO, (S, T), copartition_groups=(CopartitionGroup((0, 1)),))
    assert problem(joined, s=2, t=3) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{s=2, t=3}]",
    )


def test_a_fixed_number_that_does_not_fit_is_named() -> None:
    joined = Subtopology(
        ONE,
        (T,),
        repartition_source_topics=(repartition(R, 3),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    )
    assert problem(Subtopology(ZERO, (S,), repartition_sink_topics=(R,)), joined, s=2, t=6) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [6] of the source topic.",
    )


def test_repartition_topics_among_themselves_have_as_many_as_the_largest_or_the_fixed_one() -> None:
    def joined(*topics: InternalTopicInfo) -> list[Subtopology]:
        return [
            Subtopology(ZERO, (S,), repartition_sink_topics=(R,)),
            Subtopology(ONE, (T,), repartition_sink_topics=(Q,)),
            Subtopology(TWO, repartition_source_topics=topics, copartition_groups=(CopartitionGroup((), (), (0, 1)),)),
        ]

    assert fit(*joined(repartition(R), repartition(Q)), s=2, t=5).missing == (repartition(Q, 5), repartition(R, 5))
    assert fit(*joined(repartition(R, 3), repartition(Q)), s=2, t=5).missing == (repartition(Q, 3), repartition(R, 3))
    code, _ = problem(*joined(repartition(R, 3), repartition(Q, 4)), s=2, t=5)
    assert code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_missing_source_topics_come_first() -> None:
    assert problem(Subtopology(ZERO, (T, S), repartition_sink_topics=(R,))) == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics s, t are missing.",
    )


@pytest.mark.parametrize(
    ("subtopologies", "why"),
    [
        ((Subtopology(ZERO),), "No source topics found for subtopology 0"),
        ((Subtopology(ZERO, (S,)), Subtopology(ZERO, (S,))), "Two subtopologies have the same id."),
        (
            (Subtopology(ZERO, repartition_source_topics=(repartition(R),), repartition_sink_topics=(R,)),),
            "There may be loops in the topology",
        ),
        ((Subtopology(ZERO, repartition_source_topics=(repartition(R),)),), "is never used as a sink topic"),
        ((Subtopology(ZERO, repartition_source_topics=(repartition(R, -1),)),), "asks for -1 partitions"),
        ((Subtopology(ZERO, repartition_source_topics=(repartition(R, 2**31 - 1),)),), "it may have from 1 to"),
        ((Subtopology(ZERO, (S,), copartition_groups=(CopartitionGroup((1,)),)),), "names a topic that is not in it"),
        ((Subtopology(ZERO, (S,), copartition_groups=(CopartitionGroup((-1,)),)),), "names a topic that is not in it"),
    ],
)
def test_what_no_topics_could_make_right_is_refused(subtopologies: tuple[Subtopology, ...], why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        fit(*subtopologies, s=1)
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_an_application_has_only_so_many_tasks() -> None:
    many = [Subtopology(SubtopologyId(str(number)), (S,)) for number in range(21)]
    assert fit(*many[:20], s=1_000).is_ready
    with pytest.raises(ApiError, match="has 21000 tasks with the topics there are; 20000 are supported"):
        fit(*many, s=1_000)


def test_a_long_list_is_cut() -> None:
    assert summary("abcde") == "a, b, c and 2 additional topics"
    assert summary("cba") == "a, b, c"
