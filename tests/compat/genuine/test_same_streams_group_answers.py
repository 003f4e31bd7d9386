"""The same stories of streams groups (KIP-1071) told to genuine Kafka and to Ottla: the same answers, field by field.

Left out is how soon a member is to come back, and where tasks go when several places are equally good. Only
Ottla repeats its tasks to a member whose answer was lost: members here report their tasks when those have changed.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import Teller, beat, commit, fetch, forget, join, prepare
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.share_groups import set_group
from tests.support.streams_member import LEAVE, counting, heartbeat, internal, reading, subtopology

from ottla.protocol.messages import consumer_group_describe as cd
from ottla.protocol.messages import consumer_group_heartbeat as ch
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_groups as dg
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import describe_groups as de
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import streams_group_describe as sd
from ottla.protocol.messages import streams_group_heartbeat as sh
from ottla.protocol.primitives import NULL_UUID

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.max.size": "3",
    "offsets.topic.num.partitions": "1",
}
TOPIC: Final = 2


class Members(Teller):
    """A teller that also keeps the messages meant for people."""

    def lines(self, value: Any, path: str) -> list[str]:
        if path.endswith("heartbeat_interval_ms"):
            return []  # Ottla has members of a group that is moving come sooner
        if path.endswith("status_detail") and "are missing: " in value:
            words, _, names = value.partition("are missing: ")
            value = f"{words}are missing: {', '.join(sorted(names.split(', ')))}"  # genuine Kafka's in any order
        found = super().lines(value, path)
        if getattr(value, "error_message", None) is not None:
            found.append(f"{path}.error_message: {value.error_message!r}")
        return found

    def beat(self, who: str, group: str, epoch: int, topology: sh.Topology | None = None, **more: Any) -> Any:
        return self.tell(who, heartbeat(who, group, epoch, topology, **more), 0)

    def enter(self, who: str, group: str, topology: sh.Topology) -> int:
        """Join off the record; the epoch."""
        answer = ask(self.bootstrap, heartbeat(who, group, 0, topology), 0, client_id=who)
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)

    def leave(self, who: str, group: str) -> None:
        assert ask(self.bootstrap, heartbeat(who, group, LEAVE), 0).error_code == 0

    def describe(self, *groups: str) -> None:
        self.tell("d", sd.StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True), 0)

    def delete(self, *groups: str) -> None:
        self.tell("d", dg.DeleteGroupsRequest(groups_names=list(groups)), 2)

    def make(self, name: str, partitions: int) -> None:
        """Create a topic, and wait until the broker knows it."""
        topic = ct.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        (made,) = ask(self.bootstrap, ct.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
        assert made.error_code == 0, made
        self.until_there(name)

    def until_there(self, *names: str) -> None:
        topics = [md.MetadataRequestTopic(name=name, topic_id=NULL_UUID) for name in names]
        request = md.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        eventually(lambda: all(not topic.error_code for topic in ask(self.bootstrap, request, 12).topics))

    def until_ready(self, who: str, group: str, epoch: int) -> int:
        """Beat off the record until the group is no longer NotReady, and has been assigned anew; the epoch."""

        def is_ready() -> int | None:
            answer = ask(self.bootstrap, heartbeat(who, group, epoch), 0, client_id=who)
            assert answer.error_code == 0, answer
            return int(answer.member_epoch) if answer.member_epoch > epoch else None

        return eventually(is_ready)


def of_bad_requests(t: Members) -> None:
    fine = reading("t")
    for epoch, more in (
        (0, {"group_id": ""}),
        (0, {"member_id": " "}),
        (0, {"rack_id": ""}),
        (0, {"instance_id": "i"}),
        (0, {"rebalance_timeout_ms": -1}),
        (0, {"active": {"0": [0]}}),
        (0, {"active_tasks": None}),
        (0, {"standby_tasks": None}),
        (0, {"warmup_tasks": None}),
        (0, {"task_offsets": []}),
        (0, {"task_end_offsets": []}),
        (0, {"topology": None}),
        (1, {"topology": fine}),
        (1, {"active_tasks": []}),
        (1, {"warmup_tasks": [sh.TaskIds(subtopology_id="0", partitions=[0])]}),
        (-2, {}),
        (-3, {}),
    ):
        t.beat("a", "bad", epoch, **({"topology": fine if epoch == 0 else None} | more))
    for topology in (
        reading("__consumer_offsets"),
        reading("t", "not valid"),
        sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", regex=["t.*"])]),
        sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", keeps=[internal("c", 3)])]),
        sh.Topology(epoch=0, subtopologies=[subtopology("0")]),
        sh.Topology(epoch=0, subtopologies=[subtopology("0", reads=[internal("r")], writes=["r"])]),
        sh.Topology(epoch=0, subtopologies=[subtopology("0", "t"), subtopology("1", reads=[internal("r")])]),
    ):
        t.beat("a", "bad", 0, topology)
    t.describe("bad", "")


def of_nobody(t: Members) -> None:
    t.beat("a", "nobody", 1)
    t.beat("a", "nobody", -1)
    t.describe("nobody")
    t.delete("nobody")


def of_one_member(t: Members) -> None:
    t.beat("a", "one", 0, reading("t"), rack_id="r", client_tags=[sh.KeyValue(key="zone", value="z")])
    t.describe("one")
    t.beat("a", "one", 2)
    t.beat("a", "one", 2, active={"0": [0, 1]})
    t.beat("a", "one", 3)
    t.beat("a", "one", 1)
    t.beat("b", "one", 2)
    t.beat("b", "one", -1)
    t.beat("a", "one", 2, active={"0": [2]})
    t.beat("a", "one", 2, active={"7": [0]})
    t.beat("a", "one", 0, reading("t"))
    t.tell("c", commit("one", ("t", 0, 5), member_id="a", generation=2), 9)
    t.tell("c", commit("one", ("t", 0, 6), member_id="a", generation=1), 9)
    t.tell("c", commit("one", ("t", 0, 6), member_id="a", generation=3), 9)
    t.tell("c", commit("one", ("t", 0, 6), member_id="a", generation=2), 8)
    t.tell("c", commit("one", ("t", 0, 6), member_id="b", generation=2), 9)
    t.tell("c", commit("one", ("t", 0, 6)), 9)
    t.tell("c", fetch("one", topics=("t",)), 8)
    t.tell("c", forget("one", "t"), 0)
    t.list("one", 5)
    t.list("one", 5, types_filter=["streams"])
    t.list("one", 5, types_filter=["consumer"])
    t.list("one", 5, states_filter=["stable"])
    t.delete("one")
    t.beat("a", "one", -1)
    t.describe("one")
    t.list("one", 5)
    t.tell("c", commit("one", ("t", 1, 7)), 9)
    t.delete("one")
    t.list("one", 5)
    t.tell("c", fetch("one", topics=("t",)), 8)


def of_tasks_that_move(t: Members) -> None:
    t.beat("a", "move", 0, reading("t"))
    t.beat("b", "move", 0, reading("t"))
    t.list("move", 5)
    t.beat("b", "move", 3)
    t.beat("a", "move", 2)
    t.describe("move")
    t.tell("c", commit("move", ("t", 1, 5), member_id="a", generation=2), 9)
    t.beat("a", "move", 2, active={"0": [0]})
    t.tell("c", commit("move", ("t", 0, 5), member_id="a", generation=2), 9)
    t.tell("c", commit("move", ("t", 1, 5), member_id="a", generation=2), 9)
    t.beat("b", "move", 3)
    t.list("move", 5)
    t.beat("a", "move", -1)
    t.beat("b", "move", 3)
    t.describe("move")
    t.leave("b", "move")


def of_a_full_group(t: Members) -> None:
    for who in "abc":
        t.enter(who, "full", reading("t"))
    t.beat("d", "full", 0, reading("t"))
    t.beat("a", "full", 0, reading("t"))
    for who in "abc":
        t.leave(who, "full")


def of_topologies(t: Members) -> None:
    t.beat("a", "shape", 0, reading("t", epoch=3))
    t.beat("b", "shape", 0, reading("u", epoch=3))
    t.beat("b", "shape", 0, reading("t", epoch=4))
    t.beat("b", "shape", 0, reading("u", epoch=2))
    t.describe("shape")
    for who in "ab":
        t.leave(who, "shape")
    t.beat("a", "shape", 0, reading("t", epoch=4))


def of_missing_sources(t: Members) -> None:
    t.beat("a", "source", 0, reading("late", "t"))
    t.describe("source")
    t.list("source", 5)
    t.beat("a", "source", 2)
    t.make("late", 3)
    epoch = t.until_ready("a", "source", 2)
    t.beat("a", "source", epoch)
    t.describe("source")
    t.leave("a", "source")


def of_internal_topics(t: Members) -> None:
    answer = t.tell("a", heartbeat("a", "words", 0, counting("words", "t")), 0)
    t.until_there("words-by-word-repartition", "words-counts-changelog")
    epoch = t.until_ready("a", "words", answer.member_epoch)
    t.beat("a", "words", epoch)
    t.beat("a", "words", 0, counting("words", "t"))
    t.describe("words")
    resources = [
        dc.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["cleanup.policy", "retention.ms"]
        )
        for name in ("words-by-word-repartition", "words-counts-changelog")
    ]
    answer = ask(t.bootstrap, dc.DescribeConfigsRequest(resources=resources), 4)
    for result in answer.results:
        values = sorted((config.name, config.value) for config in result.configs)
        t.answers.append(f"{result.resource_name}: {values}")
    topics = [md.MetadataRequestTopic(name=resource.resource_name, topic_id=NULL_UUID) for resource in resources]
    described = ask(t.bootstrap, md.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12).topics
    t.answers += sorted(f"{topic.name}: {len(topic.partitions)}" for topic in described)
    t.leave("a", "words")


def of_topics_that_do_not_fit(t: Members) -> None:
    group = sh.CopartitionGroup(source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[])
    t.beat("a", "fit", 0, sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", "u", copartitioned=[group])]))
    t.describe("fit")
    t.leave("a", "fit")
    keeps = [internal("u")]
    t.beat("a", "fits", 0, sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", keeps=keeps)]))
    t.leave("a", "fits")


def of_a_topic_that_cannot_be_created(t: Members) -> None:
    keeps = [internal("unmade-changelog", 0, 9)]
    topology = sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", keeps=keeps)])
    epoch = t.enter("a", "unmade", topology)

    def has_failed() -> bool:
        answer = ask(t.bootstrap, heartbeat("a", "unmade", epoch), 0, client_id="a")
        return "Creation failed: unmade-changelog (" in answer.status[0].status_detail

    eventually(has_failed)
    t.leave("a", "unmade")


def of_standby_tasks(t: Members) -> None:
    keeps = [internal("standby-changelog")]
    topology = sh.Topology(epoch=0, subtopologies=[subtopology("0", "t", keeps=keeps)])
    # Before the changelog is made: Kafka answers before a setting is in force, which is so when a later topic is known.
    set_group(t.bootstrap, "standby", streams_num_standby_replicas="1")
    t.until_ready("a", "probe", t.enter("a", "probe", topology))
    t.leave("a", "probe")
    t.beat("a", "standby", 0, topology)
    t.beat("b", "standby", 0, topology)
    t.beat("a", "standby", 2)
    t.beat("a", "standby", 2, active={"0": [0]}, standby={})
    t.beat("b", "standby", 3)
    t.beat("a", "standby", 3)
    t.describe("standby")
    t.leave("b", "standby")
    t.leave("a", "standby")


def of_end_points(t: Members) -> None:
    t.beat("a", "points", 0, reading("t"), endpoint=("here", 1))
    t.beat("b", "points", 0, reading("t"), endpoint=("there", 65535))
    t.beat("a", "points", 2, endpoint_information_epoch=1)
    answer = t.beat("a", "points", 2, active={"0": [0]}, endpoint_information_epoch=2)
    t.beat("b", "points", 3, endpoint_information_epoch=answer.endpoint_information_epoch)
    t.describe("points")
    for who in "ab":
        t.leave(who, "points")


def of_a_shutdown(t: Members) -> None:
    t.enter("a", "end", reading("t"))
    t.enter("b", "end", reading("t"))
    t.beat("a", "end", 2, shutdown_application=True)
    t.beat("b", "end", 3)
    t.beat("a", "end", -1)
    t.beat("b", "end", 3)
    t.leave("b", "end")
    t.beat("c", "end", 0, reading("t"))
    t.beat("c", "end", -1, shutdown_application=True)


def of_other_kinds(t: Members) -> None:
    t.enter("a", "kinds", reading("t"))
    t.join("j", "kinds")
    t.tell("j", beat("kinds", "a", 2), 4)
    consumer = ch.ConsumerGroupHeartbeatRequest(
        group_id="kinds",
        member_id="k",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    t.tell("k", consumer, 1)
    t.tell("k", cd.ConsumerGroupDescribeRequest(group_ids=["kinds"], include_authorized_operations=False), 1)
    t.tell("k", de.DescribeGroupsRequest(groups=["kinds"], include_authorized_operations=False), 6)
    t.leave("a", "kinds")
    back = ask(t.bootstrap, join("kinds"), 9, client_id="j")
    answer = ask(t.bootstrap, join("kinds", back.member_id), 9, client_id="j")
    assert answer.error_code == 0, answer
    t.list("kinds", 5)
    t.beat("a", "kinds", 0, reading("t"))
    t.beat("a", "kinds", 1)
    t.beat("a", "kinds", -1)
    t.describe("kinds")
    t.tell("c", commit("simple", ("t", 0, 1)), 9)
    t.beat("a", "simple", 0, reading("t"))
    t.list("simple", 5)
    t.tell("c", fetch("simple", topics=("t",)), 8)
    t.leave("a", "simple")


def of_a_silent_member(t: Members) -> None:
    set_group(t.bootstrap, "silent", streams_session_timeout_ms="2000")
    t.enter("a", "silent", reading("t"))
    request = sd.StreamsGroupDescribeRequest(group_ids=["silent"], include_authorized_operations=False)
    eventually(lambda: ask(t.bootstrap, request, 0).groups[0].group_state == "Empty")
    t.beat("a", "silent", 2)
    t.describe("silent")


STORIES: Final = [
    of_bad_requests,
    of_nobody,
    of_one_member,
    of_tasks_that_move,
    of_a_full_group,
    of_topologies,
    of_missing_sources,
    of_internal_topics,
    of_topics_that_do_not_fit,
    of_a_topic_that_cannot_be_created,
    of_standby_tasks,
    of_end_points,
    of_a_shutdown,
    of_other_kinds,
    of_a_silent_member,
]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    """Fresh groups for every story: they have names of their own."""
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        for broker in (genuine, ottla):
            prepare(broker, "t")
            Members(broker.bootstrap).make("u", 3)
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
