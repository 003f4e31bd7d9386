"""The same stories of groups told to genuine Kafka and to Ottla: the same answers, field by field.

Member ids are numbered in the order in which they turn up. Answers that wait are read when the story says so.
"""

import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask

from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_groups as dg
from ottla.protocol.messages import describe_groups as de
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import heartbeat as hb
from ottla.protocol.messages import join_group as jg
from ottla.protocol.messages import leave_group as lg
from ottla.protocol.messages import list_groups as ls
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import offset_commit as oc
from ottla.protocol.messages import offset_delete as od
from ottla.protocol.messages import offset_fetch as of
from ottla.protocol.messages import sync_group as sg
from ottla.protocol.schema import Message, Struct, fields_of

SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offset.metadata.max.bytes": "10",
}
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
REBALANCE_IN_PROGRESS: Final = 27
UNORDERED: Final = ("members", "groups", "topics", "partitions")
IGNORED: Final = {"throttle_time_ms", "error_message", "host", "port", "node_id"}


class Teller:
    """Tells one broker a story and keeps what it answers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.answers: list[str] = []
        self.numbers: dict[str, str] = {}
        self.sockets: dict[str, socket.socket] = {}
        self.waiting: dict[str, tuple[Message, int]] = {}

    def send(self, who: str, request: Message, version: int) -> None:
        """Ask over `who`'s own connection; the answer is read by `hear`."""
        if who not in self.sockets:
            host, _, port = self.bootstrap.rpartition(":")
            self.sockets[who] = socket.create_connection((host, int(port)), 20)
        self.sockets[who].sendall(b"".join(map(bytes, encode_request(request, version, 1, who))))  # type: ignore[arg-type] # no records
        self.waiting[who] = (request, version)

    def hear(self, who: str) -> Any:
        request, version = self.waiting.pop(who)
        size = int.from_bytes(self._receive(who, 4), "big")
        assert request.API_KEY is not None
        _, answer = decode_response(request.API_KEY, version, self._receive(who, size))
        self.answers += self.lines(answer, f"{who} v{version} {type(answer).__name__}")
        return answer

    def tell(self, who: str, request: Message, version: int) -> Any:
        self.send(who, request, version)
        return self.hear(who)

    def _receive(self, who: str, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sockets[who].recv(size - len(data))
            assert part, f"the broker closed the connection of {who}"
            data += part
        return data

    def lines(self, value: Any, path: str) -> list[str]:
        """A line for every value; unordered lists in a fixed order."""
        if isinstance(value, (Message, Struct)):
            names = [field.name for field in fields_of(type(value)) if field.name not in IGNORED]
            return [line for name in names for line in self.lines(getattr(value, name), f"{path}.{name}")]
        if isinstance(value, list):
            items = [self.lines(item, "") for item in value]
            ordered = sorted(items) if path.endswith(UNORDERED) else items
            return [f"{path}[{number}]{line}" for number, item in enumerate(ordered) for line in item] or [
                f"{path}: []"
            ]
        if isinstance(value, str) and path.endswith(("member_id", "leader")) and len(value) > 30:
            value = self.numbers.setdefault(value, f"member {len(self.numbers) + 1}")
        return [f"{path}: {value!r}"]

    def close(self) -> None:
        for sock in self.sockets.values():
            sock.close()

    def rebalancing(self, group: str, member_id: str, generation: int, instance: str | None = None) -> None:
        """Wait until what was sent over other connections has put the group into a rebalance."""
        request = beat(group, member_id, generation, instance)
        eventually(lambda: ask(self.bootstrap, request, 4).error_code == REBALANCE_IN_PROGRESS)

    def list(self, group: str, version: int, **filters: Any) -> None:
        """Is the group among those listed, and how?"""
        answer = ask(self.bootstrap, ls.ListGroupsRequest(**filters), version)
        answer.groups = [listed for listed in answer.groups if listed.group_id == group]
        self.answers += self.lines(answer, f"v{version} ListGroups")

    # --- what members say ---

    def join(
        self, who: str, group: str, member_id: str = "", *, version: int = 9, wait: bool = True, **more: Any
    ) -> Any:
        """With `wait`, the answer; a member that is sent back for its id comes again at once."""
        request = join(group, member_id, version=version, **more)
        if not member_id and not more.get("instance") and version >= 4:
            back = self.tell(who, request, version)
            if back.error_code != 79:
                return back
            request.member_id = back.member_id
        self.send(who, request, version)
        return self.hear(who) if wait else request.member_id

    def sync(
        self, who: str, group: str, member_id: str, generation: int, shares: dict[str, bytes], **more: Any
    ) -> None:
        self.send(who, sync(group, member_id, generation, shares, **more), 5)


def join(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    version: int = 9,
    protocol_type: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = SUBSCRIPTION,
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
) -> jg.JoinGroupRequest:
    return jg.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[jg.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
    )


def sync(
    group: str, member_id: str, generation: int, shares: dict[str, bytes] | None = None, **more: Any
) -> sg.SyncGroupRequest:
    assignments = [
        sg.SyncGroupRequestAssignment(member_id=who, assignment=share) for who, share in (shares or {}).items()
    ]
    more = {"protocol_type": "consumer", "protocol_name": "range", **more}
    return sg.SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member_id, assignments=assignments, **more
    )


def beat(group: str, member_id: str, generation: int, instance: str | None = None) -> hb.HeartbeatRequest:
    return hb.HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )


def leave(group: str, *members: tuple[str, str | None]) -> lg.LeaveGroupRequest:
    who = [lg.MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
    return lg.LeaveGroupRequest(group_id=group, members=who)


def commit(
    group: str, *offsets: tuple[str, int, int], member_id: str = "", generation: int = -1, metadata: str | None = None
) -> oc.OffsetCommitRequest:
    return oc.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            oc.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    oc.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for topic, partition, offset in offsets
                    if topic == name
                ],
            )
            for name in dict.fromkeys(topic for topic, _, _ in offsets)
        ],
    )


def fetch(*groups: str, topics: tuple[str, ...] | None = None, stable: bool = False) -> of.OffsetFetchRequest:
    wanted = None
    if topics is not None:
        wanted = [of.OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1, 9]) for name in topics]
    return of.OffsetFetchRequest(
        groups=[of.OffsetFetchRequestGroup(group_id=group, topics=wanted) for group in groups], require_stable=stable
    )


def forget(group: str, *topics: str) -> od.OffsetDeleteRequest:
    return od.OffsetDeleteRequest(
        group_id=group,
        topics=[
            od.OffsetDeleteRequestTopic(
                name=name, partitions=[od.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
            )
            for name in topics
        ],
    )


def describe(*groups: str) -> de.DescribeGroupsRequest:
    return de.DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True)


# --- the stories ---


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
    """Three fit, and the fourth is told."""
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


def prepare(broker: BrokerProcess) -> None:
    topics = [
        ct.CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in ("t", "u")
    ]
    ask(broker.bootstrap, ct.CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7)

    def is_ready() -> bool:
        named = [md.MetadataRequestTopic(name=name) for name in ("t", "u")]
        known = ask(broker.bootstrap, md.MetadataRequest(topics=named, allow_auto_topic_creation=False), 9).topics
        ask(broker.bootstrap, fc.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        error: int = ask(broker.bootstrap, fetch("g"), 9).groups[0].error_code
        return error == 0 and not any(topic.error_code for topic in known)

    eventually(is_ready)


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
