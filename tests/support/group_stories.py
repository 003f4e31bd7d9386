"""Stories of groups told to a broker, request by request, and what it answered, line by line, to be compared.

Member ids are numbered in the order in which they turn up, unless the story chose them. Answers that wait are read
when the story says so.
"""

import socket
from typing import Any, Final

from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages import create_topics as ct
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
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask

SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
REBALANCE_IN_PROGRESS: Final = 27
UNORDERED: Final = ("members", "groups", "topics", "partitions", "topic_names")
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
        if isinstance(value, str) and path.endswith(("member_id", "leader")) and len(value) > 20:
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


def prepare(broker: BrokerProcess, *names: str) -> None:
    """Make topics of two partitions, `t` and `u` unless told otherwise, and wait for the group coordinator."""
    names = names or ("t", "u")
    topics = [
        ct.CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    ask(broker.bootstrap, ct.CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7)

    def is_ready() -> bool:
        named = [md.MetadataRequestTopic(name=name) for name in names]
        known = ask(broker.bootstrap, md.MetadataRequest(topics=named, allow_auto_topic_creation=False), 9).topics
        ask(broker.bootstrap, fc.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        error: int = ask(broker.bootstrap, fetch("g"), 9).groups[0].error_code
        return error == 0 and not any(topic.error_code for topic in known)

    eventually(is_ready)
