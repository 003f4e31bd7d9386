"""The same stories of share groups (KIP-932) told to genuine Kafka and to Ottla: the same answers, field by field.

Topic ids are named by their topic. A member of Ottla's has its partitions with the first answer, one of Kafka's with a
later one: stories go on once it has them. Offsets are not asked for of a partition that is not there: Kafka 4.3.1 never
answers that.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import Teller, beat, commit, describe, fetch, forget, join, leave, prepare, sync
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.share_groups import topic_id

from ottla.protocol.messages import alter_share_group_offsets as ao
from ottla.protocol.messages import consumer_group_describe as cd
from ottla.protocol.messages import consumer_group_heartbeat as ch
from ottla.protocol.messages import delete_groups as dg
from ottla.protocol.messages import delete_share_group_offsets as do
from ottla.protocol.messages import delete_share_group_state as ds
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import describe_share_group_offsets as so
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import initialize_share_group_state as ist
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import read_share_group_state as rs
from ottla.protocol.messages import read_share_group_state_summary as rss
from ottla.protocol.messages import share_group_describe as sd
from ottla.protocol.messages import share_group_heartbeat as sh
from ottla.protocol.messages import write_share_group_state as ws
from ottla.protocol.primitives import NULL_UUID

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "3",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.session.timeout.ms": "2000",
    "group.share.min.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
SHARE: Final = 2
LEAVE: Final = -1
UNKNOWN: Final = UUID(int=99)


class Members(Teller):
    """A teller that knows topics by name."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        topics = [md.MetadataRequestTopic(name=name, topic_id=NULL_UUID) for name in ("t", "u", "gone")]
        answer = ask(bootstrap, md.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        self.ids: dict[str, UUID] = {topic.name: topic.topic_id for topic in answer.topics if not topic.error_code}

    def lines(self, value: Any, path: str) -> list[str]:
        if isinstance(value, UUID):
            named = {topic_id: f"id of {name}" for name, topic_id in self.ids.items()}
            return [f"{path}: {named.get(value, value)}"]
        if path.endswith("ConsumerGroupHeartbeatResponse.heartbeat_interval_ms"):
            return []  # Ottla has members of a group that is moving come sooner
        if isinstance(value, list) and path.endswith("responses"):
            value = sorted(value, key=lambda topic: topic.topic_name)
        return super().lines(value, path)

    def beat(
        self, who: str, group: str, epoch: int, *, rack: str | None = None, topics: list[str] | None = None
    ) -> Any:
        """A heartbeat of the member called `who`, whose id is its name."""
        return self.tell(who, heartbeat(who, group, epoch, rack=rack, topics=topics), 1)

    def enter(self, who: str, group: str, topics: list[str] | None = None) -> int:
        """A member joins and has partitions, off the record; its epoch."""
        answer = ask(self.bootstrap, heartbeat(who, group, 0, topics=topics or ["t"]), 1, client_id=who)
        assert answer.error_code == 0, answer
        epoch: int = answer.member_epoch

        def has_partitions() -> bool:
            nonlocal answer, epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return True
            answer = ask(self.bootstrap, heartbeat(who, group, epoch), 1, client_id=who)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            return False

        eventually(has_partitions)
        return epoch

    def leave(self, who: str, group: str) -> None:
        """Off the record."""
        assert ask(self.bootstrap, heartbeat(who, group, LEAVE), 1).error_code == 0

    def describe(self, *groups: str) -> None:
        self.tell("d", sd.ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True), 1)

    def offsets(self, group: str, topics: dict[str, list[int]] | None = None) -> None:
        asked = None
        if topics is not None:
            asked = [
                so.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
                for name, indexes in topics.items()
            ]
        groups = [so.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked)]
        self.tell("d", so.DescribeShareGroupOffsetsRequest(groups=groups), 1)

    def alter(self, group: str, offsets: dict[str, dict[int, int]]) -> ao.AlterShareGroupOffsetsRequest:
        return ao.AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                ao.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        ao.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                        for index, offset in starts.items()
                    ],
                )
                for name, starts in offsets.items()
            ],
        )

    def delete_offsets(self, group: str, *topics: str) -> None:
        named = [do.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        self.tell("d", do.DeleteShareGroupOffsetsRequest(group_id=group, topics=named), 0)

    def delete(self, *groups: str) -> None:
        self.tell("d", dg.DeleteGroupsRequest(groups_names=list(groups)), 2)

    # --- what leaders and coordinators of share partitions say ---

    def initialize(self, group: str, topic: UUID, partition: int, epoch: int, start: int) -> None:
        part = ist.PartitionData(partition=partition, state_epoch=epoch, start_offset=start)
        topics = [ist.InitializeStateData(topic_id=topic, partitions=[part])]
        self.tell("c", ist.InitializeShareGroupStateRequest(group_id=group, topics=topics), 0)

    def write(
        self,
        group: str,
        topic: UUID,
        partition: int,
        *batches: tuple[int, int, int, int],
        epoch: int = 0,
        leader: int = 0,
        start: int = -1,
    ) -> None:
        part = ws.PartitionData(
            partition=partition,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            state_batches=[
                ws.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        topics = [ws.WriteStateData(topic_id=topic, partitions=[part])]
        self.tell("c", ws.WriteShareGroupStateRequest(group_id=group, topics=topics), 0)

    def read(self, group: str, topic: UUID, partition: int, leader: int = 0) -> None:
        part = rs.PartitionData(partition=partition, leader_epoch=leader)
        topics = [rs.ReadStateData(topic_id=topic, partitions=[part])]
        self.tell("c", rs.ReadShareGroupStateRequest(group_id=group, topics=topics), 0)

    def summarize(self, group: str, topic: UUID, partition: int) -> None:
        part = rss.PartitionData(partition=partition, leader_epoch=0)
        topics = [rss.ReadStateSummaryData(topic_id=topic, partitions=[part])]
        self.tell("c", rss.ReadShareGroupStateSummaryRequest(group_id=group, topics=topics), 0)

    def delete_state(self, group: str, topic: UUID, partition: int) -> None:
        topics = [ds.DeleteStateData(topic_id=topic, partitions=[ds.PartitionData(partition=partition)])]
        self.tell("c", ds.DeleteShareGroupStateRequest(group_id=group, topics=topics), 0)


def heartbeat(
    who: str, group: str, epoch: int, *, rack: str | None = None, topics: list[str] | None = None
) -> sh.ShareGroupHeartbeatRequest:
    return sh.ShareGroupHeartbeatRequest(
        group_id=group, member_id=who, member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics
    )


def consumer_heartbeat(group: str, epoch: int) -> ch.ConsumerGroupHeartbeatRequest:
    """A heartbeat of the member `o` of a consumer group."""
    return ch.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="o",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["not-there"],
        topic_partitions=[],
    )


# --- the stories ---


def of_bad_requests(t: Members) -> None:
    """What can be told to be wrong by looking at it."""
    for who, group in (("", "g"), (" ", "g"), ("a", ""), ("a", " ")):
        t.tell("a", heartbeat(who, group, 0, topics=["t"]), 1)
    t.beat("a", "bad", 0, topics=["t"], rack="")
    t.beat("a", "bad", 0)
    t.beat("a", "bad", 0, topics=[])
    t.beat("a", "bad", -2)
    t.describe("bad", "")
    t.describe()


def of_nobody(t: Members) -> None:
    """Members and groups that are not there."""
    t.beat("a", "nobody", 1)
    t.beat("a", "nobody", LEAVE)
    epoch = t.enter("a", "one")
    for wrong in (epoch + 1, epoch + 100, LEAVE):
        t.beat("b", "one", wrong)
    t.beat("a", "one", epoch + 1)
    t.beat("a", "one", epoch)
    t.describe("nobody", "one")


def of_one_member(t: Members) -> None:
    epoch = t.enter("a", "single", ["t", "u"])
    t.beat("a", "single", epoch)
    t.beat("a", "single", epoch, topics=["t", "u"])
    t.describe("single")
    t.list("single", 5)
    t.list("single", 5, types_filter=["share"])
    t.list("single", 5, types_filter=["Classic"])
    t.list("single", 5, states_filter=["Stable"])
    t.offsets("single")
    t.delete("single")
    t.leave("a", "single")
    t.describe("single")
    t.list("single", 5, states_filter=["empty"])
    t.beat("a", "single", epoch)
    t.delete("single", "single")
    t.delete("single")
    t.delete("none")
    t.describe("single")
    t.offsets("single")


def of_a_full_group(t: Members) -> None:
    for who in ("a", "b", "c"):
        t.enter(who, "full")
    t.beat("d", "full", 0, topics=["t"])
    t.beat("d", "full", 3)
    t.leave("a", "full")
    t.enter("d", "full")
    t.beat("a", "full", LEAVE)


def of_a_topic_that_is_not_there(t: Members) -> None:
    t.beat("a", "early", 0, topics=["not-there"])
    t.describe("early")
    t.offsets("early")


def of_other_kinds(t: Members) -> None:
    """A share group is none for those who want another, and the other way round."""
    t.enter("a", "share")
    t.tell("o", commit("share", ("t", 0, 5)), 9)
    t.tell("o", fetch("share"), 9)
    t.tell("o", forget("share", "t"), 0)
    t.tell("o", join("share"), 9)
    t.tell("o", beat("share", "a", 2), 4)
    t.tell("o", sync("share", "a", 2), 5)
    t.tell("o", leave("share", ("a", None)), 5)
    for version in (5, 6):
        t.tell("o", describe("share"), version)
    t.tell("o", consumer_heartbeat("share", 0), 1)
    t.tell("o", consumer_heartbeat("share", 2), 1)
    t.tell("o", consumer_heartbeat("share", LEAVE), 1)
    t.tell("o", cd.ConsumerGroupDescribeRequest(group_ids=["share"], include_authorized_operations=False), 1)
    t.leave("a", "share")
    t.tell("o", join("share"), 9)
    t.tell("o", consumer_heartbeat("share", 0), 1)
    t.tell("o", commit("share", ("t", 0, 5)), 9)
    t.tell("o", consumer_heartbeat("consumer", 0), 1)
    t.beat("a", "consumer", 0, topics=["t"])
    t.beat("a", "consumer", 1)
    t.describe("consumer")
    t.tell("o", commit("classic", ("t", 0, 5)), 9)
    t.beat("a", "classic", 0, topics=["t"])
    t.beat("a", "classic", 1)
    t.beat("a", "classic", LEAVE)
    t.describe("classic")
    t.offsets("classic", {"t": [0]})
    t.offsets("classic")
    t.delete_offsets("classic", "t")
    for group in ("classic", "share", "consumer"):
        t.delete(group)


def of_a_silent_member(t: Members) -> None:
    t.enter("a", "silent")

    def is_out() -> bool:
        request = sd.ShareGroupDescribeRequest(group_ids=["silent"], include_authorized_operations=False)
        state: str = ask(t.bootstrap, request, 1).groups[0].group_state
        return state == "Empty"

    eventually(is_out)
    t.describe("silent")
    t.beat("a", "silent", 2)


def of_offsets(t: Members) -> None:
    t.enter("a", "offsets", ["t"])
    t.offsets("offsets")
    t.offsets("offsets", {"t": [0, 1], "u": [0], "none": [0]})
    t.offsets("offsets", {})
    t.delete_offsets("offsets", "t")
    t.leave("a", "offsets")
    t.tell("d", t.alter("offsets", {"none": {0: 1}}), 0)
    t.tell("d", t.alter("offsets", {}), 0)
    t.tell("d", t.alter("offsets", {"t": {0: 2, 1: 0}, "none": {0: 1}}), 0)
    t.offsets("offsets", {"t": [0, 1]})
    t.tell("d", t.alter("offsets", {"t": {1: 0}}), 0)
    t.offsets("offsets")
    t.delete_offsets("offsets", "t", "none")
    t.delete_offsets("offsets", "t")
    t.delete_offsets("offsets")
    t.delete_offsets("", "t")
    t.delete_offsets("not-there", "t")
    t.offsets("offsets")
    t.offsets("not-there")
    t.offsets("not-there", {"t": [0]})
    t.delete("offsets")


def of_a_topic_that_goes(t: Members) -> None:
    epoch = t.enter("a", "going", ["t", "gone"])
    t.offsets("going")
    topics = [dt.DeleteTopicState(name="gone", topic_id=NULL_UUID)]
    ask(t.bootstrap, dt.DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)

    def is_gone() -> bool:
        nonlocal epoch
        answer = ask(t.bootstrap, heartbeat("a", "going", epoch), 1, client_id="a")
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        assigned = answer.assignment
        return assigned is not None and [topic.topic_id for topic in assigned.topic_partitions] == [t.ids["t"]]

    eventually(is_gone)
    t.offsets("going")


def of_state(t: Members) -> None:
    """The share coordinator's answers to brokers, which alone may change share state."""
    group, topic = "state", t.ids["t"]
    t.read(group, topic, 0)
    t.write(group, topic, 0, (0, 4, 2, 1))
    t.summarize(group, topic, 0)
    t.delete_state(group, topic, 0)
    t.initialize(group, topic, 0, epoch=2, start=5)
    t.read(group, topic, 0, leader=1)
    t.read(group, topic, 0, leader=0)
    t.write(group, topic, 0, (5, 9, 0, 1), epoch=2, leader=0)
    t.write(group, topic, 0, (5, 9, 0, 1), (12, 14, 4, 1), epoch=2, leader=1)
    t.write(group, topic, 0, (6, 7, 2, 2), (8, 9, 0, 2), epoch=2, leader=1)
    t.write(group, topic, 0, (6, 12, 0, 1), epoch=1, leader=1)
    t.write(group, topic, 0, (10, 11, 2, 1), epoch=2, leader=1)
    t.read(group, topic, 0, leader=1)
    t.write(group, topic, 0, epoch=2, leader=3, start=8)
    t.summarize(group, topic, 0)
    t.read(group, topic, 0, leader=3)
    t.write(group, topic, 0, (13, 13, 2, 3), epoch=4, leader=3)
    t.read(group, topic, 0, leader=-1)
    t.read(group, topic, 0, leader=3)
    t.initialize(group, topic, 0, epoch=3, start=0)
    t.initialize(group, topic, 0, epoch=4, start=20)
    t.summarize(group, topic, 0)
    t.read(group, topic, 0, leader=2)
    t.read(group, topic, 0, leader=3)
    t.delete_state(group, topic, 0)
    t.read(group, topic, 0, leader=3)
    for where, partition in ((UNKNOWN, 0), (topic, 9), (topic, -1)):
        t.initialize(group, where, partition, epoch=0, start=0)
        t.write(group, where, partition, (0, 1, 2, 1))
        t.read(group, where, partition)
        t.summarize(group, where, partition)
        t.delete_state(group, where, partition)
    t.initialize("", topic, 0, epoch=0, start=0)
    t.tell("c", rs.ReadShareGroupStateRequest(group_id=group, topics=[]), 0)
    t.tell(
        "c",
        ws.WriteShareGroupStateRequest(group_id=group, topics=[ws.WriteStateData(topic_id=topic, partitions=[])]),
        0,
    )


def of_coordinators(t: Members) -> None:
    for key in (
        "g:AAAAAAAAAAAAAAAAAAAAAQ:0",
        "g",
        "",
        "g:t:0",
        "g:AAAAAAAAAAAAAAAAAAAAAQ:x",
        ":AAAAAAAAAAAAAAAAAAAAAQ:0",
    ):
        for version in (4, 6):
            t.tell("c", fc.FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), version)


STORIES: Final = [
    of_bad_requests,
    of_nobody,
    of_one_member,
    of_a_full_group,
    of_a_topic_that_is_not_there,
    of_other_kinds,
    of_a_silent_member,
    of_offsets,
    of_a_topic_that_goes,
    of_state,
    of_coordinators,
]


def coordinates_shares(bootstrap: str) -> bool:
    """Both partitions of the share coordinator's topic are led, and read: groups of eight names lie in either."""
    keys = [f"probe:AAAAAAAAAAAAAAAAAAAAAQ:{partition}" for partition in range(8)]
    found = ask(bootstrap, fc.FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys), 6).coordinators
    part = rss.PartitionData(partition=0, leader_epoch=0)
    topics = [rss.ReadStateSummaryData(topic_id=topic_id(bootstrap, "t"), partitions=[part])]
    told = [
        ask(bootstrap, rss.ReadShareGroupStateSummaryRequest(group_id=f"probe {number}", topics=topics), 0)
        for number in range(8)
    ]
    errors = [coordinator.error_code for coordinator in found]
    errors += [answer.results[0].partitions[0].error_code for answer in told]
    return not any(errors)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    """Fresh groups for every story: they have names of their own."""
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        for broker in (genuine, ottla):
            prepare(broker, "t", "u", "gone")
            eventually(partial(coordinates_shares, broker.bootstrap))
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
