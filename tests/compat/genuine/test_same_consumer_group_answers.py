"""The same stories of consumer groups (KIP-848) told to genuine Kafka and to Ottla: the same answers, field by field.

What differs by nature is numbered: topic ids by their topic, member ids that the broker makes by their turn. Which
partitions of a topic a member gets is compared too, as far as Kafka itself does not leave it to the order of a hash.
Heartbeat intervals are not compared: Ottla has members of a group that is moving come sooner.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from tests.support.consumer_group_stories import Members, assignment, subscription
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import beat, commit, describe, fetch, forget, join, leave, prepare, sync
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.protocol.messages import delete_groups as dg
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import offset_fetch as of
from ottla.protocol.primitives import NULL_UUID

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.max.size": "3",
    "offsets.topic.num.partitions": "1",
}
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
LAST: Final = "~last"
"""The id of a member that comes behind every id that a broker makes."""


def of_bad_requests(t: Members) -> None:
    """What can be told to be wrong by looking at it."""
    group = "bad"
    good: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "owned": {}}
    for version in (0, 1):
        for wrong in (
            {"member_id": ""},
            {"member_id": " "},
            {"rebalance_timeout_ms": -1},
            {"owned": None},
            {"owned": {"t": [0]}},
            {"subscribed_topic_names": None},
            {"instance_id": ""},
            {"rack_id": " "},
            {"server_assignor": "nonsense"},
            {"server_assignor": ""},
        ):
            if version == 0 and "member_id" in wrong:
                continue  # is given one
            t.beat("a", group, 0, version=version, **{**good, **wrong})
        t.beat("a", "", 0, version=version, **good)
        t.beat("a", " ", 0, version=version, **good)
        for epoch in (-3, -100):
            t.beat("a", group, epoch, version=version, **good)
        t.beat("a", group, LEAVE_FOR_A_WHILE, version=version)
        for epoch in (1, LEAVE):
            t.beat("a", group, epoch, member_id="", version=version)
    t.beat("a", group, 0, **{**good, "subscribed_topic_names": None, "subscribed_topic_regex": "["})
    t.describe(group, "", "no-such-group")
    t.describe(group, version=0)
    t.describe()


def of_nobody(t: Members) -> None:
    """Members and groups that are not there."""
    for epoch in (1, LEAVE):
        t.beat("nobody", "empty", epoch)
    t.beat("nobody", "empty", LEAVE_FOR_A_WHILE, instance_id="i")
    t.describe("empty")
    t.enter("a", "one")
    for epoch in (1, LEAVE):
        t.beat("nobody", "one", epoch)
    t.beat("nobody", "one", LEAVE_FOR_A_WHILE, instance_id="i")
    t.beat("a", "one", 1, instance_id="i")
    t.beat("a", "one", 5)
    t.beat("a", "one", 0)
    for name in ("one", "no-such-group"):
        t.answers.append(ask(t.bootstrap, describe(name), 6).groups[0].error_message)
    for version in range(7):
        t.tell("d", describe("one") if version >= 3 else type(describe("one"))(groups=["one"]), version)
    t.tell("d", dg.DeleteGroupsRequest(groups_names=["one"]), 2)
    t.beat("a", "one", LEAVE)
    t.describe("one")
    t.tell("d", describe("one"), 6)
    t.tell("d", dg.DeleteGroupsRequest(groups_names=["one"]), 2)
    t.describe("one")


def of_one_member(t: Members) -> None:
    """From the first heartbeat to the last."""
    group = "single"
    first = t.enter("a", group, ["t", "u"], rack_id="r1")
    t.describe(group)
    last = t.follow("a", group, first)
    t.describe(group)
    t.list(group, 5, types_filter=["Consumer"])
    t.list(group, 5, types_filter=["classic"])
    t.list(group, 5, states_filter=["stable"])
    t.list(group, 4, states_filter=["Empty"])
    t.list(group, 3)
    epoch = last.member_epoch
    t.beat("a", group, epoch)
    t.beat("a", group, epoch, subscribed_topic_names=["t", "u"])
    changed = t.beat("a", group, epoch, subscribed_topic_names=["u"], rack_id="r2")
    t.describe(group)
    changed = t.follow("a", group, changed)
    t.beat("a", group, changed.member_epoch, subscribed_topic_names=["nowhere"])
    t.describe(group)
    t.beat("a", group, epoch)
    t.beat("a", group, epoch + 7)
    t.beat("a", group, LEAVE)
    t.describe(group)
    t.list(group, 5, types_filter=["consumer"])


def of_a_full_heartbeat(t: Members) -> None:
    """A full heartbeat gets a full answer, so that a member that has missed an answer catches up."""
    group = "full"
    joined = t.enter("a", group)
    everything: dict[str, Any] = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
    t.beat("a", group, joined.member_epoch, owned={}, **everything)
    t.beat("a", group, joined.member_epoch, owned={"t": [0, 1]}, **everything)
    t.enter("a", group)
    t.enter("b", group)
    t.describe(group)


def of_two_members(t: Members) -> None:
    """The first gives up what the second is to have, and only then is it given away."""
    group = "two"
    t.enter("a", group)
    t.settle(group, "a")
    t.enter("b", group)
    t.sizes(group)
    t.settle(group, "a", "b")
    t.sizes(group)
    t.enter("c", group)
    t.settle(group, "a", "b", "c")
    t.sizes(group)
    t.enter("d", group)
    t.beat("b", group, LEAVE)
    t.settle(group, "a", "c")
    t.sizes(group)


def of_range(t: Members) -> None:
    """The other assignor, whose result is the same everywhere."""
    group = "ranges"
    t.enter("a", group, ["t", "u"], server_assignor="range")
    t.enter("b", group, ["t", "u"], server_assignor="range")
    t.settle(group, "a", "b")
    t.describe(group)
    now = t.described(group).members[0].member_epoch
    t.beat("a", group, now, server_assignor="uniform")
    t.describe(group)
    t.beat("b", group, now, server_assignor="uniform")
    t.settle(group, "a", "b")
    t.sizes(group)
    t.beat("a", group, LEAVE)
    t.beat("b", group, LEAVE)
    t.describe(group)


def of_static_members(t: Members) -> None:
    """They leave for a while, come back under another id, and fence who is taken for them."""
    group = "static"
    t.enter("a", group, instance_id="i")
    t.settle(group, "a")
    t.enter("z", group, instance_id="i")
    t.beat("z", group, 1, instance_id="i")
    t.beat("a", group, LEAVE_FOR_A_WHILE, instance_id="j")
    t.beat("a", group, LEAVE_FOR_A_WHILE, instance_id="i")
    t.describe(group)
    t.beat("a", group, t.described(group).group_epoch, instance_id="i")
    t.enter("z", group, instance_id="i")
    t.describe(group)
    t.beat("a", group, t.described(group).group_epoch, instance_id="i")
    t.beat("a", group, LEAVE, instance_id="i")
    t.beat("z", group, LEAVE, instance_id="i")
    t.describe(group)


def of_offsets(t: Members) -> None:
    """Commits and fetches with member epochs."""
    group = "offsets"
    first = t.enter("a", group)
    epoch = first.member_epoch
    for version in (8, 9):
        t.tell("a", commit(group, ("t", 0, 5), member_id="a", generation=epoch), version)
        t.tell("a", commit(group, ("t", 0, 6), member_id="a", generation=epoch - 1), version)
        t.tell("a", commit(group, ("t", 0, 7), member_id="a", generation=epoch + 1), version)
        t.tell("a", commit(group, ("t", 0, 8), member_id="b", generation=epoch), version)
        t.tell("a", commit(group, ("t", 0, 9)), version)

    def reading(member_id: str | None, member_epoch: int) -> of.OffsetFetchRequest:
        request = fetch(group, topics=("t",))
        request.groups[0].member_id, request.groups[0].member_epoch = member_id, member_epoch
        return request

    for member_id, member_epoch in (("a", epoch), ("a", epoch - 1), ("a", epoch + 1), ("b", epoch), (None, -1)):
        t.tell("a", reading(member_id, member_epoch), 9)
    t.tell("a", fetch(group), 8)
    t.tell("a", forget(group, "t", "u"), 0)
    t.tell("a", dg.DeleteGroupsRequest(groups_names=[group]), 2)
    t.beat("a", group, LEAVE)
    t.tell("a", commit(group, ("t", 1, 9)), 9)
    t.tell("a", commit(group, ("t", 1, 9), member_id="a", generation=epoch), 9)
    t.tell("a", forget(group, "t"), 0)
    t.tell("a", fetch(group), 9)
    t.tell("a", dg.DeleteGroupsRequest(groups_names=[group]), 2)
    t.tell("a", fetch(group), 9)


def of_offsets_in_transactions(t: Members) -> None:
    """Transactional commits of members, strangers and members of the past (KIP-447), of both generations (KIP-890)."""
    group = "transactional"
    epoch = t.enter("a", group).member_epoch
    for version in (3, 4, 5):
        producer = t.producer(f"transactional {version}")
        for member_id, member_epoch, instance in (
            ("a", epoch, None),
            ("a", epoch - 1, None),
            ("a", epoch + 1, None),
            ("a", -1, None),
            ("b", epoch, None),
            ("a", epoch, "i"),
            ("", epoch, None),
            ("", -1, None),
        ):
            if version < 5:
                t.tell("a", producer.adds(group), 3)
            t.tell("a", producer.commits(group, ("t", 0, version), member_id, member_epoch, instance), version)
        t.tell("a", fetch(group, topics=("t",), stable=True), 8)
        t.tell("a", producer.ends(), 3 if version < 5 else 5)
        eventually(lambda: not ask(t.bootstrap, fetch(group, topics=("t",), stable=True), 8).groups[0].error_code)

        def is_stable() -> bool:
            (topic,) = ask(t.bootstrap, fetch(group, topics=("t",), stable=True), 8).groups[0].topics
            return not any(partition.error_code for partition in topic.partitions)

        eventually(is_stable)
        t.tell("a", fetch(group, topics=("t",), stable=True), 8)
    t.beat("a", group, LEAVE)
    producer = t.producer("transactional empty")
    t.tell("a", producer.commits(group, ("t", 0, 9), "a", epoch), 5)
    t.tell("a", producer.commits(group, ("t", 0, 9)), 5)
    t.tell("a", producer.commits("no-such-group", ("t", 0, 9), "a", 1), 5)
    t.tell("a", producer.ends(committed=False), 5)


def of_a_regular_expression(t: Members) -> None:
    """Topics that match are found a moment later; an expression that is bad is refused."""
    group = "regular"
    t.enter("a", group, subscribed_topic_regex="[", rebalance_timeout_ms=1000)
    joined = t.enter("a", group, subscribed_topic_regex="t|nothing.*")
    epoch = joined.member_epoch

    def found() -> bool:
        nonlocal epoch
        answer = ask(t.bootstrap, t.heartbeat("a", group, epoch), 1, client_id="a")
        assert answer.error_code == 0
        epoch = answer.member_epoch
        return any(member.target_assignment.topic_partitions for member in t.described(group).members)

    eventually(found)
    (member,) = t.described(group).members
    t.answers += t.lines(member.target_assignment, "found")
    t.answers.append(f"{member.subscribed_topic_names} {member.subscribed_topic_regex}")
    t.beat("a", group, epoch, subscribed_topic_regex="(")
    t.beat("a", group, LEAVE)
    t.enter("e", "regular nothing", subscribed_topic_regex="")
    t.describe("regular nothing")


def of_a_silent_member(t: Members) -> None:
    """Settings of the group decide when it is given up."""
    group = "silent"
    t.set(group, consumer_session_timeout_ms="1500", consumer_heartbeat_interval_ms="1000")
    t.set(group, consumer_session_timeout_ms="999")

    def set_is_known() -> bool:
        probe = t.heartbeat("p", group, 0, owned={}, rebalance_timeout_ms=1000, subscribed_topic_names=["t"])
        return bool(ask(t.bootstrap, probe, 1).heartbeat_interval_ms <= 1000)

    eventually(set_is_known)
    eventually(lambda: not t.described(group).members, timeout_s=30)  # a session takes 45 s otherwise
    t.beat("p", group, 1)
    t.answers.append(t.described(group).group_state)


def of_a_slow_member(t: Members) -> None:
    """One that does not give up in time what another is to have is put out."""
    group = "slow"
    t.enter("a", group, rebalance_timeout_ms=1000)
    t.settle(group, "a")
    t.enter("b", group)
    t.beat("a", group, 2)
    eventually(lambda: [member.member_id for member in t.described(group).members] == ["b"], timeout_s=30)
    t.beat("a", group, 2)
    t.settle(group, "b")
    t.sizes(group)


def of_a_topic_that_goes(t: Members) -> None:
    """Its partitions are taken away, the rest stays."""
    group = "shrinking"
    t.create("gone")
    t.enter("a", group, ["t", "gone"])
    t.settle(group, "a")
    t.describe(group)
    gone = dt.DeleteTopicState(name="gone", topic_id=NULL_UUID)
    t.tell("a", dt.DeleteTopicsRequest(topics=[gone], timeout_ms=10_000), 6)

    def given_up() -> bool:
        """Descriptions leave a topic out that is gone; the group takes note of it with a heartbeat."""
        t.settle(group, "a")
        described = t.described(group)
        (member,) = described.members
        topics = [topic.topic_name for topic in member.target_assignment.topic_partitions]
        return bool(described.group_epoch > 2 and topics == ["t"])

    eventually(given_up)
    t.sizes(group)


def of_a_classic_group(t: Members) -> None:
    """What an old member says to a new group, and a new one to an old group, where they cannot be mixed."""
    group = "connect"
    one = t.join("old", group, protocol_type="connect").member_id
    t.sync("old", group, one, 1, {}, protocol_type="connect")
    t.hear("old")
    t.enter("new", group)
    t.describe(group)
    t.tell("old", leave(group, (one, None)), 5)
    t.enter("new", group)
    t.tell("d", describe(group), 6)
    t.tell("old", beat(group, "new", 1), 4)
    t.tell("old", sync(group, "new", 1), 5)
    t.tell("old", leave(group, ("new", None)), 5)
    t.tell("old", join(group, "who", protocol_type="connect"), 9)
    t.tell("old", join(group, "who", protocols=("range",), metadata=b"nonsense"), 9)
    t.describe(group)


def of_an_upgrade(t: Members) -> None:
    """A classic group takes in a member of the new protocol, and loses its last classic one."""
    group = "upgrade"
    one = t.join("old", group, metadata=subscription(), protocols=("range",)).member_id
    t.sync("old", group, one, 1, {one: assignment([0, 1])})
    t.hear("old")
    t.tell("old", commit(group, ("t", 0, 3), member_id=one, generation=1), 9)
    t.enter("new", group, server_assignor="range")
    t.describe(group)
    t.tell("d", describe(group), 6)
    t.list(group, 5)
    t.tell("old", commit(group, ("t", 0, 4), member_id=one, generation=1), 9)
    t.tell("old", beat(group, one, 1), 4)
    joined = t.rejoin("old", group, one, [0, 1], 1)
    t.describe(group)
    t.tell("old", beat(group, one, joined.generation_id), 4)
    joined = t.rejoin("old", group, one, [1], joined.generation_id)
    t.tell("old", beat(group, one, joined.generation_id), 4)
    t.tell("old", beat(group, one, joined.generation_id - 1), 4)
    t.beat("new", group, joined.generation_id)
    t.describe(group)
    t.tell("old", commit(group, ("t", 0, 5), member_id=one, generation=joined.generation_id), 9)
    t.tell("old", commit(group, ("t", 0, 6), member_id=one, generation=joined.generation_id - 1), 9)
    t.beat("old", group, joined.generation_id, member_id=one)
    t.tell("old", beat(group, "new", joined.generation_id), 4)
    t.tell("old", join(group, one, protocols=("roundrobin",), metadata=subscription()), 9)
    t.tell("old", leave(group, (one, None)), 5)
    t.settle(group, "new")
    t.describe(group)
    t.list(group, 5)
    t.tell("new", fetch(group), 9)


def of_a_downgrade(t: Members) -> None:
    """When the last member of the new protocol leaves, the group is a classic one again."""
    group = "downgrade"
    t.enter(LAST, group, server_assignor="range")
    t.settle(group, LAST)
    back = t.tell("old", join(group, metadata=subscription(), protocols=("range",)), 9)
    one = back.member_id
    joined = t.join("old", group, one, metadata=subscription())
    t.fetch_assignment("old", group, joined)
    t.describe(group)
    t.beat(LAST, group, LEAVE)
    t.list(group, 5)
    t.describe(group)
    t.tell("d", describe(group), 5)
    t.tell("old", beat(group, one, joined.generation_id), 4)
    t.tell("old", join(group, one, metadata=subscription()), 9)
    generation = t.tell("d", beat(group, one, 0), 4).error_code
    t.answers.append(f"stale: {generation}")


def of_static_members_that_change(t: Members) -> None:
    """A static member comes back with the other protocol and keeps its place."""
    group = "static-change"
    one = t.join("old", group, instance="i", metadata=subscription()).member_id
    t.sync("old", group, one, 1, {one: assignment([0, 1])}, group_instance_id="i")
    t.hear("old")
    t.enter("new", group, instance_id="i", server_assignor="range")
    t.describe(group)
    t.tell("old", beat(group, one, 1, "i"), 4)
    t.tell("old", commit(group, ("t", 0, 4), member_id=one, generation=1), 9)
    t.settle(group, "new")
    t.describe(group)
    back = t.join("old", group, instance="i", metadata=subscription())
    t.answers.append(f"came back: {back.error_code}")
    t.describe(group)


def of_odd_classic_joins(t: Members) -> None:
    """What a classic member may get wrong when it joins a consumer group, or says once it is in it."""
    group = "odd"
    t.enter(LAST, group, server_assignor="range")
    t.settle(group, LAST)
    every: tuple[dict[str, Any], ...] = (
        {"protocols": ()},
        {"protocol_type": ""},
        {"protocol_type": "connect"},
        {"metadata": b""},
        {"metadata": b"\0"},
        {"session_ms": 1},
        {"session_ms": 1_900_000},
        {"member_id": "stranger", "instance": "i"},
    )
    for wrong in every:
        t.tell("old", join(group, **{"metadata": subscription(), **wrong}), 9)
    for version in (0, 3):
        joined = t.tell("old", join(group, metadata=subscription()), version)
        t.tell("old", leave(group, (joined.member_id, None)), 5)
    t.sizes_of_all(group)
    t.tell("old", join("", metadata=subscription()), 9)
    one = t.join("old", group, metadata=subscription(topics=("t", "u"))).member_id
    (two,) = [member for member in t.described(group).members if member.member_id == one]
    t.tell("old", sync(group, one, two.member_epoch + 1), 5)
    t.tell("old", sync(group, one, two.member_epoch, protocol_type="connect"), 5)
    t.tell("old", sync(group, one, two.member_epoch, protocol_name="roundrobin"), 5)
    t.tell("old", sync(group, "stranger", two.member_epoch), 5)
    t.tell("old", sync(group, one, two.member_epoch), 5)
    t.tell("old", beat(group, one, two.member_epoch + 1), 4)
    t.tell("old", beat(group, one, -1), 4)
    t.tell("old", beat(group, "stranger", two.member_epoch), 4)
    t.tell("old", beat(group, one, two.member_epoch, "no-instance"), 4)
    t.tell("old", leave(group, ("stranger", None), ("", "no-instance"), (one, None), (one, None)), 5)
    t.sizes_of_all(group)
    t.tell("old", join(group, LAST, metadata=b"\0"), 9)
    t.tell("old", join(group, LAST, metadata=subscription()), 9)
    t.list(group, 5)


def of_static_classic_members(t: Members) -> None:
    """Static members of the classic protocol in a consumer group, and who is fenced."""
    group = "static-classic"
    t.enter(LAST, group, server_assignor="range")
    t.settle(group, LAST)
    one = t.join("old", group, instance="i", metadata=subscription()).member_id
    two = t.join("other", group, instance="i", metadata=subscription()).member_id
    t.tell("old", beat(group, one, 2, "i"), 4)
    t.tell("old", sync(group, one, 2, group_instance_id="i"), 5)
    t.tell("old", join(group, one, instance="i", metadata=subscription()), 9)
    t.tell("old", commit(group, ("t", 0, 1), member_id=one, generation=2), 9)
    t.tell("other", beat(group, two, 1, "i"), 4)
    t.tell("other", leave(group, (one, "i")), 5)
    t.tell("other", leave(group, ("", "i")), 5)
    t.enter("new", group, instance_id="i")
    t.tell("other", beat(group, two, 2, "i"), 4)
    t.beat("new", group, LEAVE_FOR_A_WHILE, instance_id="i")
    t.sizes_of_all(group)


def of_a_group_deleted_while_it_has_classic_members(t: Members) -> None:
    """Admin requests on a group that is between the two protocols."""
    group = "between"
    t.enter(LAST, group, server_assignor="range")
    one = t.join("old", group, metadata=subscription()).member_id
    t.tell("d", dg.DeleteGroupsRequest(groups_names=[group]), 2)
    t.tell("d", forget(group, "t", "u"), 0)
    t.tell("d", commit(group, ("t", 0, 1)), 9)
    t.tell("d", fetch(group), 9)
    t.tell("d", fetch(group, topics=("t",), stable=True), 9)
    t.tell("d", leave(group, (one, None)), 5)
    t.beat(LAST, group, LEAVE)
    t.tell("d", commit(group, ("t", 0, 1)), 9)
    t.tell("d", dg.DeleteGroupsRequest(groups_names=[group]), 2)
    t.list(group, 5)


STORIES: Final = [
    of_bad_requests,
    of_nobody,
    of_one_member,
    of_a_full_heartbeat,
    of_two_members,
    of_range,
    of_static_members,
    of_offsets,
    of_offsets_in_transactions,
    of_a_regular_expression,
    of_a_silent_member,
    of_a_slow_member,
    of_a_topic_that_goes,
    of_a_classic_group,
    of_an_upgrade,
    of_a_downgrade,
    of_static_members_that_change,
    of_odd_classic_joins,
    of_static_classic_members,
    of_a_group_deleted_while_it_has_classic_members,
]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    """Fresh groups for every story: they have names of their own."""
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        prepare(genuine)
        prepare(ottla)
        yield genuine.bootstrap, ottla.bootstrap


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_same_story_has_the_same_answers(pair: tuple[str, str], story: Callable[[Members], None]) -> None:
    tellers = [Members(bootstrap) for bootstrap in pair]
    try:
        for teller in tellers:
            story(teller)
    finally:
        for teller in tellers:
            teller.close()
    genuine, ottla = tellers
    assert ottla.answers == genuine.answers
