"""The same stories of classic groups told to genuine Kafka and to Ottla: the same answers, field by field."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import (
    Teller,
    beat,
    commit,
    describe,
    fetch,
    forget,
    join,
    leave,
    prepare,
    sync,
)
from tests.support.ottla_process import OttlaProcess

from ottla.protocol.messages import delete_groups as dg
from ottla.protocol.messages import describe_groups as de
from ottla.protocol.messages import leave_group as lg
from ottla.protocol.messages import offset_fetch as of

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offset.metadata.max.bytes": "10",
}


def of_nobody(t: Teller) -> None:
    """Groups and members that are not there, in every version."""
    for group in ("no-such-group", ""):
        for version in range(10):
            t.tell("a", join(group, "nobody"), version)
        for version in range(6):
            t.tell("a", sync(group, "nobody", 1), version)
            t.tell(
                "a", leave(group, ("nobody", None)) if version > 2 else lg.LeaveGroupRequest(group_id=group), version
            )
        for version in range(5):
            t.tell("a", beat(group, "nobody", 1), version)
        for version in range(2, 10):
            t.tell("a", commit(group, ("t", 0, 1), member_id="nobody", generation=3), version)
        t.tell("a", fetch(group, topics=("t", "nowhere")), 8)
        t.tell("a", fetch(group, stable=True), 9)
        t.tell("a", forget(group, "t"), 0)
        t.tell("a", dg.DeleteGroupsRequest(groups_names=[group]), 2)
        for version in range(3):
            t.tell("a", de.DescribeGroupsRequest(groups=[group]), version)
        for version in range(3, 7):
            t.tell("a", describe(group), version)


def of_two_members(t: Teller) -> None:
    """A leader and a follower, from the first join to the empty group."""
    group = "two"
    one = t.join("a", group).member_id
    t.sync("a", group, one, 1, {one: b"both"})
    t.hear("a")
    two = t.join("b", group, wait=False)
    t.rebalancing(group, one, 1)
    t.tell("c", describe(group), 6)
    t.tell("a", beat(group, one, 1), 4)
    t.tell("c", commit(group, ("t", 0, 5), member_id=one, generation=1), 9)
    t.join("a", group, one)
    t.hear("b")
    t.tell("c", commit(group, ("t", 0, 5), member_id=one, generation=2), 9)
    t.tell("c", beat(group, two, 2), 4)
    t.tell("c", describe(group), 6)
    t.sync("b", group, two, 2, {})
    t.sync("a", group, one, 2, {one: b"first", "stranger": b"lost"})
    t.hear("a")
    t.hear("b")
    t.tell("c", describe(group), 6)
    t.list(group, 5, states_filter=["stable"], types_filter=["Classic"])
    t.list(group, 5, states_filter=["Empty"])
    t.list(group, 5, types_filter=["share"])
    t.list(group, 5, types_filter=["nonsense"])
    t.list(group, 5, states_filter=["nonsense"])
    t.tell("b", sync(group, two, 2), 5)
    t.tell("b", join(group, two), 9)
    t.tell("b", sync(group, two, 1), 5)
    t.tell("b", sync(group, two, 2, protocol_type="connect", protocol_name="range"), 5)
    t.tell("b", sync(group, two, 2, protocol_type="consumer", protocol_name="sticky"), 5)
    t.tell("b", beat(group, two, 1), 4)
    t.tell("b", beat(group, two, 2, "an-instance"), 4)
    t.tell("b", commit(group, ("t", 0, 7), ("t", 9, 1), ("nowhere", 0, 1), member_id=two, generation=2), 9)
    t.tell("b", commit(group, ("t", 0, 8), member_id=two, generation=1), 9)
    t.tell("b", commit(group, ("t", 0, 9), member_id="", generation=-1), 9)
    t.tell("b", commit(group, ("t", 1, 9), member_id=two, generation=2, metadata="far too long"), 9)
    t.tell("b", fetch(group, "no-such-group", topics=("t",)), 9)
    t.tell("b", fetch(group), 9)
    t.tell("b", forget(group, "t", "u"), 0)
    t.tell("b", dg.DeleteGroupsRequest(groups_names=[group]), 2)
    t.tell("c", join(group, protocol_type="connect"), 9)
    t.tell("c", join(group, protocols=("sticky",)), 9)
    t.tell("c", leave(group, ("nobody", None), (two, None), ("", "no-instance")), 5)
    t.tell("a", beat(group, one, 2), 4)
    t.join("a", group, one)
    t.tell("c", leave(group, (one, None)), 5)
    t.tell("c", describe(group), 6)
    t.tell("c", commit(group, ("t", 1, 3)), 9)
    t.tell("c", commit(group, ("t", 1, 3), member_id=one, generation=3), 9)
    t.tell("c", sync(group, one, 4), 5)
    t.tell("c", beat(group, one, 4), 4)
    t.tell("c", join(group, one), 9)
    t.tell("c", forget(group, "t", "u"), 0)
    t.tell("c", fetch(group), 9)
    t.tell("c", dg.DeleteGroupsRequest(groups_names=[group, group]), 2)


def of_static_members(t: Teller) -> None:
    """Instances that come back, are fenced, and are removed by an administrator."""
    group = "static"
    one = t.join("a", group, instance="i").member_id
    t.sync("a", group, one, 1, {one: b"all"}, group_instance_id="i")
    t.hear("a")
    for version in range(5, 10):
        back = t.join("a", group, instance="i", version=version)
        t.tell("b", beat(group, one, 1, "i"), 4)
        t.tell("b", sync(group, one, 1, group_instance_id="i"), 5)
        t.tell("b", join(group, one, instance="i"), 9)
        t.tell("b", leave(group, (one, "i")), 5)
        one = back.member_id
        t.tell("a", sync(group, one, 1, group_instance_id="i"), 5)
        t.tell("a", beat(group, one, 1, "i"), 4)
        t.tell("a", beat(group, one, 1), 4)
    t.tell("a", join(group, "guessed", instance="j"), 9)
    t.send("b", join(group, instance="j"), 9)
    t.rebalancing(group, one, 1, "i")
    t.join("a", group, one, instance="i")
    two = t.hear("b").member_id
    t.sync("b", group, two, 2, {}, group_instance_id="j")
    t.tell("d", beat(group, two, 2, "j"), 4)
    t.send("c", join(group, instance="j"), 9)
    t.rebalancing(group, one, 2, "i")
    t.hear("b")
    t.tell("d", beat(group, one, 2, "i"), 4)
    t.join("a", group, one, instance="i")
    three = t.hear("c").member_id
    t.sync("a", group, one, 3, {one: b"1", three: b"2"}, group_instance_id="i")
    t.hear("a")
    t.tell("c", sync(group, three, 3, group_instance_id="j"), 5)
    t.tell("d", describe(group), 6)
    t.tell("d", leave(group, ("", "i"), ("", "nobody"), (three, "i")), 5)
    t.tell("d", beat(group, one, 3, "i"), 4)
    t.tell("c", beat(group, three, 3, "j"), 4)


def of_a_choice_of_protocols(t: Teller) -> None:
    """Each member prefers another one; all know one."""
    group = "choice"
    one = t.join("a", group, protocols=("range", "sticky")).member_id
    t.join("b", group, protocols=("sticky", "roundrobin"), wait=False)
    t.rebalancing(group, one, 1)
    t.join("a", group, one, protocols=("range", "sticky"))
    t.hear("b")
    t.tell("c", join(group, protocols=("range",)), 9)
    t.tell("c", join(group, protocols=()), 9)


def of_a_full_group(t: Teller) -> None:
    """Three members fit, and the fourth is refused."""
    group = "full"
    ids = [t.join("a", group).member_id]
    for generation, who in enumerate("bc", 1):
        newcomer = t.join(who, group, wait=False)
        t.rebalancing(group, ids[0], generation)
        for other, member_id in zip("ab", ids, strict=False):
            t.join(other, group, member_id, wait=False)
        ids.append(newcomer)
        for member in "abc"[: len(ids)]:
            t.hear(member)
    t.tell("d", join(group), 9)
    t.tell("d", join(group), 3)


def of_odd_joins(t: Teller) -> None:
    """What a join may not say."""
    for session_ms in (999, 1_800_001, -1):
        t.tell("a", join("odd", session_ms=session_ms), 9)
    t.tell("a", join("odd", protocol_type=""), 9)
    t.tell("a", join("odd", protocols=()), 9)
    t.tell("a", join("odd", "", version=4), 4)


def of_the_first_versions(t: Teller) -> None:
    """A member of long ago."""
    group = "old"
    one = t.join("a", group, version=0).member_id
    t.tell("a", sync(group, one, 1, {one: b"all"}), 0)
    t.tell("a", beat(group, one, 1), 0)
    request = commit(group, ("t", 0, 5), member_id=one, generation=1)
    request.retention_time_ms = 86_400_000
    t.tell("a", request, 2)
    for version in range(1, 8):
        topics = [of.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        t.tell("a", of.OffsetFetchRequest(group_id=group, topics=topics), version)
    for version in range(2, 8):
        t.tell("a", of.OffsetFetchRequest(group_id=group, topics=None), version)
    for version in range(6):
        t.list(group, version)
    t.tell("a", lg.LeaveGroupRequest(group_id=group, member_id=one), 0)
    t.tell("a", lg.LeaveGroupRequest(group_id=group, member_id=one), 1)


def of_offsets_alone(t: Teller) -> None:
    """A group that is nothing but a name."""
    t.tell("a", commit("simple", ("t", 0, 1), ("u", 0, 2), metadata="m"), 9)
    t.tell("a", commit("simple"), 9)
    t.tell("a", fetch("simple", topics=("t", "u", "nowhere")), 9)
    t.tell("a", describe("simple"), 6)
    t.list("simple", 5, states_filter=["Empty"])
    t.tell("a", forget("simple", "t", "nowhere"), 0)
    t.tell("a", fetch("simple"), 9)
    t.tell("a", join("simple", "guessed"), 9)
    t.tell("a", dg.DeleteGroupsRequest(groups_names=["simple"]), 0)
    t.tell("a", fetch("simple"), 9)


STORIES: Final = [
    of_nobody,
    of_two_members,
    of_static_members,
    of_a_choice_of_protocols,
    of_a_full_group,
    of_odd_joins,
    of_the_first_versions,
    of_offsets_alone,
]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    """Fresh groups for every story: they have names of their own, and lists are asked for by state or at the end."""
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        prepare(genuine)
        prepare(ottla)
        yield genuine.bootstrap, ottla.bootstrap


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_same_story_has_the_same_answers(pair: tuple[str, str], story: Callable[[Teller], None]) -> None:
    tellers = [Teller(bootstrap) for bootstrap in pair]
    try:
        for teller in tellers:
            story(teller)
    finally:
        for teller in tellers:
            teller.close()
    genuine, ottla = tellers
    assert ottla.answers == genuine.answers
