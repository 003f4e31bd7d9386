"""Requests of members of classic groups, sent to the machine by a driver."""

from typing import Any

from tests.support.state_machines import Driver

from ottla.groups.classic.states import GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    Assignor,
    DescribeGroups,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
)
from ottla.groups.state_machine import GroupMachine
from ottla.ids import GroupId, InstanceId, MemberId

G = GroupId("g")
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = Assignor("range", b"r")
STICKY = Assignor("cooperative-sticky", b"s")


def driver(**settings: Any) -> Driver:
    numbers = iter(range(1, 10_000))
    return Driver(GroupMachine(GroupConfig(**settings), lambda: str(next(numbers))))


def join(member: str = "", **changes: Any) -> Join:
    given: dict[str, Any] = {
        "group_id": G,
        "member_id": MemberId(member),
        "instance_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "protocol_type": "consumer",
        "protocols": (RANGE,),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
    }
    return Join(**{**given, **changes})


def static(instance: str, member: str = "", **changes: Any) -> Join:
    return join(member, instance_id=InstanceId(instance), **changes)


def sync(member: str, generation: int, assignments: dict[str, bytes] | None = None, **changes: Any) -> Sync:
    shares = {MemberId(name): share for name, share in (assignments or {}).items()}
    instance = changes.pop("instance", None)
    return Sync(G, MemberId(member), instance, generation, assignments=shares, **changes)


def heartbeat(member: str, generation: int, instance: InstanceId | None = None) -> Heartbeat:
    return Heartbeat(G, MemberId(member), instance, generation)


def leave(*members: str) -> Leave:
    return Leave(G, tuple(LeavingMember(MemberId(member)) for member in members))


def enter(d: Driver, label: Any, **changes: Any) -> str:
    """Ask for an id, come back with it; the reply to the second JoinGroup comes under the label."""
    d.send(join(**changes), ("id", label))
    member_id: str = d.reply(("id", label)).member_id
    d.send(join(member_id, **changes), label)
    return member_id


def stable_group(d: Driver, count: int = 2) -> list[str]:
    """Members in order, the first leads; generation 1; shares b"0", b"1", ..."""
    members = [enter(d, f"join-{i}") for i in range(count)]
    d.pass_time(REBALANCE_MS, until=lambda: state(d) is GroupState.COMPLETING_REBALANCE)
    shares = {member: str(i).encode() for i, member in enumerate(members)}
    for i, member in reversed(list(enumerate(members))):
        d.send(sync(member, 1, shares if i == 0 else None), f"sync-{i}")
    assert state(d) is GroupState.STABLE
    return members


def state(d: Driver) -> GroupState:
    d.send(DescribeGroups((G,)), ("state", d.now_ms, len(d.replies)))
    (description,) = list(d.replies.values())[-1][0]
    found: GroupState = description.state
    return found
