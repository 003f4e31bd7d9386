"""Members of the classic protocol as clients of a driven machine, in groups of either kind."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.classic.embedded import read_assignment
from ottla.groups.events import NO_MEMBER, Assignor, Heartbeat, Join, Joined, Sync, Synced
from ottla.ids import InstanceId, MemberId
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.versioned import encode_versioned
from tests.support.consumer_members import Consumer, G, World

FIRST_REBALANCE_MS: Final = 100
REBALANCE: Final = ErrorCode.REBALANCE_IN_PROGRESS


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    assigned = [TopicPartition(topic="t", partitions=list(partitions))] if partitions else []
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data), 3)


class Classic:
    """A member of the classic protocol that subscribes to t, and reads what SyncGroup last gave it."""

    def __init__(self, world: World, *, instance: str | None = None, protocols: Iterable[str] = ("range",)) -> None:
        self.world = world
        self.instance = None if instance is None else InstanceId(instance)
        self.protocols = tuple(protocols)
        self.member_id = NO_MEMBER
        self.generation = -1
        self.has: list[int] = []
        self.joined: Joined | None = None
        self.waits_for: Join | Sync | None = None
        """A request that has not been answered."""

    def request(self, **changes: Any) -> Join:
        owned = [TopicPartition(topic="t", partitions=self.has)] if self.has else []
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned), 3)
        protocols = tuple(Assignor(name, metadata) for name in self.protocols)
        request = Join(G, self.member_id, self.instance, "c", "/h", "consumer", protocols, 10_000, 20_000, "", False)
        return replace(request, **changes)

    def start_join(self, **changes: Any) -> Join:
        request = self.request(**changes)
        self.world.driver.send(request)
        return request

    def finish_join(self, request: Request[Joined]) -> Joined:
        joined: Joined = self.world.driver.reply(request)
        if joined.error is ErrorCode.NONE:
            self.member_id, self.generation, self.joined = joined.member_id, joined.generation, joined
        return joined

    def join(self, **changes: Any) -> Joined:
        return self.finish_join(self.start_join(**changes))

    def start_sync(self, assignments: dict[MemberId, bytes] | None = None) -> Sync:
        name = None if self.joined is None else self.joined.protocol_name
        request = Sync(G, self.member_id, self.instance, self.generation, "consumer", name, assignments)
        self.world.driver.send(request)
        return request

    def finish_sync(self, request: Request[Synced]) -> Synced:
        synced: Synced = self.world.driver.reply(request)
        if synced.error is ErrorCode.NONE:
            assigned = read_assignment(synced.assignment).assigned_partitions
            self.has = [partition for topic in assigned for partition in topic.partitions]
        return synced

    def sync(self, assignments: dict[MemberId, bytes] | None = None) -> Synced:
        return self.finish_sync(self.start_sync(assignments))

    def beat(self) -> ErrorCode:
        """Send a heartbeat; when the answer asks for a rejoin, revoke, join and sync."""
        return self.world.ask(Heartbeat(G, self.member_id, self.instance, self.generation))

    def follow(self) -> None:
        """As a client does that has been waiting for nothing: beat, and if told to, join and sync."""
        self.read_answers()
        if self.waits_for is not None or self.member_id == NO_MEMBER:
            return
        error = self.beat()
        if error is REBALANCE:
            self.join_soon()
        elif error is not ErrorCode.NONE:
            self.member_id, self.generation, self.has = NO_MEMBER, -1, []

    def join_soon(self) -> None:
        """Join, and sync once there is an answer: at once in a consumer group, in a classic one later."""
        self.read_answers()
        if self.waits_for is None:
            self.waits_for = self.start_join()
            self.read_answers()

    def read_answers(self) -> None:
        while self.waits_for is not None and not self.world.driver.waits(self.waits_for):
            request, self.waits_for = self.waits_for, None
            if isinstance(request, Join):
                self._read_joined(self.finish_join(request))
            elif self.finish_sync(request).error is not ErrorCode.NONE:
                self.has = []

    def _read_joined(self, joined: Joined) -> None:
        if joined.error is not ErrorCode.NONE:
            self.member_id, self.generation, self.has = NO_MEMBER, -1, []
            return
        shares = {member.member_id: assignment() for member in joined.members}
        if shares:
            shares[self.member_id] = assignment(0, 1, 2, 3)
        self.waits_for = self.start_sync(shares)

    def forget_requests(self) -> None:
        """Whoever coordinated the group is gone, and with it what was to be answered."""
        self.waits_for = None

    @property
    def partitions(self) -> list[str]:
        return [f"t-{partition}" for partition in sorted(self.has)]


def classic_group(world: World, *members: Classic, give: Iterable[tuple[int, ...]]) -> None:
    """A stable classic group of these members, each with these partitions."""
    joins = [member.start_join() for member in members]
    world.driver.pass_time(FIRST_REBALANCE_MS)
    for member, join in zip(members, joins, strict=True):
        member.finish_join(join)
    shares = {member.member_id: assignment(*share) for member, share in zip(members, give, strict=True)}
    syncs = [member.start_sync(shares if member is members[0] else None) for member in reversed(members)]
    for member, sync in zip(reversed(members), syncs, strict=True):
        member.finish_sync(sync)


def settle_all(*members: Classic | Consumer, rounds: int = 10) -> None:
    for _ in range(rounds):
        for member in members:
            if isinstance(member, Classic):
                member.follow()
            else:
                member.beat()
