"""Members of groups without a client library, in a process of its own: a thousand of them would be too heavy with one.

`python -m benches.members_load heartbeats|groups ...` prints one line of JSON. The broker's memory and processor time
are read from the operating system by its process id.
"""

import argparse
import asyncio
import itertools
import json
import sys
import uuid
from abc import ABC, abstractmethod
from typing import Any, Final

import psutil

from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages import consumer_group_heartbeat as ch
from ottla.protocol.messages import consumer_protocol as cp
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import heartbeat as hb
from ottla.protocol.messages import join_group as jg
from ottla.protocol.messages import offset_commit as oc
from ottla.protocol.messages import sync_group as sg
from ottla.protocol.schema import Message
from ottla.protocol.versioned import decode_versioned, encode_versioned

_SETTLED_WITHIN_S: Final = 240.0
_MEMBER_ID_REQUIRED: Final = 79
_NOT_READY: Final = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""


class RefusedError(RuntimeError):
    """The broker answered a member with an error that the load has no use for."""


class Connection:
    """Requests over one connection, answered in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, bootstrap: str) -> "Connection":
        """Connect to `host:port`."""
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: Message, version: int) -> Any:
        """Send one request and wait for its answer."""
        async with self._turn:
            self._writer.writelines(bytes(piece) for piece in encode_request(request, version, 1, "members"))  # type: ignore[arg-type] # no records
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        api_key = type(request).API_KEY
        if api_key is None:
            raise TypeError(f"{type(request).__name__} is no request")
        return decode_response(api_key, version, frame)[1]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Member(ABC):
    """One member of a group: joins, follows, stays."""

    interval_s: float
    """Between its heartbeats, once it has settled."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self.connection, self.group, self.topic = connection, group, topic
        self.partitions: frozenset[int] = frozenset()
        """What it holds."""
        self.settled = False
        """Whether it has an assignment and nothing more was asked of it since."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, int]:
        """Its id, and its generation or epoch."""

    @abstractmethod
    async def step(self) -> None:
        """Say the next thing: join, acknowledge, or a heartbeat. Raises RefusedError."""


class NewMember(Member):
    """A member of a group that uses the protocol of KIP-848."""

    interval_s = 5.0

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        super().__init__(connection, group, topic)
        self._id, self._epoch = str(uuid.uuid4()), 0
        self._held: list[ch.TopicPartitions] = []
        self._news = False

    @property
    def identity(self) -> tuple[str, int]:
        return self._id, self._epoch

    async def step(self) -> None:
        request = ch.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self._id, member_epoch=self._epoch)
        if self._epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [self.topic]
        if self._epoch == 0 or self._news:
            request.topic_partitions = self._held
        answer = await self.connection.ask(request, 1)
        if answer.error_code in _NOT_READY:
            return
        if answer.error_code:
            raise RefusedError(f"a heartbeat of {self.group}: error {answer.error_code}, {answer.error_message}")
        self._epoch, self._news = answer.member_epoch, answer.assignment is not None
        if answer.assignment is not None:
            self._held = answer.assignment.topic_partitions
            self.partitions = frozenset(number for held in self._held for number in held.partitions)
        self.settled = bool(self.partitions) and not self._news


class ClassicMember(Member):
    """A member of a classic group, whose leader assigns one partition to each member."""

    interval_s = 3.0

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        super().__init__(connection, group, topic)
        self._id, self._generation = "", -1
        subscription = cp.ConsumerProtocolSubscription(topics=[topic])
        self._protocols = [jg.JoinGroupRequestProtocol(name="range", metadata=encode_versioned(subscription, 1))]

    @property
    def identity(self) -> tuple[str, int]:
        return self._id, self._generation

    async def step(self) -> None:
        if self._generation < 0:
            await self._join()
            return
        request = hb.HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._id)
        answer = await self.connection.ask(request, 4)
        if answer.error_code:
            self._generation, self.settled = -1, False
        else:
            self.settled = bool(self.partitions)

    async def _join(self) -> None:
        request = jg.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=self._protocols,
        )
        joined = await self.connection.ask(request, 9)
        if joined.error_code == _MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await self.connection.ask(request, 9)
        if joined.error_code:
            self._id = "" if joined.error_code == 25 else joined.member_id
            return
        self._id = joined.member_id
        everyone = [member.member_id for member in joined.members]
        shares = [
            sg.SyncGroupRequestAssignment(member_id=member_id, assignment=self._share(number))
            for number, member_id in enumerate(everyone)
        ]
        sync = sg.SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares if joined.leader == self._id else [],
        )
        synced = await self.connection.ask(sync, 5)
        if not synced.error_code:
            self._generation = joined.generation_id
            assigned = decode_versioned(cp.ConsumerProtocolAssignment, synced.assignment).assigned_partitions
            self.partitions = frozenset(number for held in assigned for number in held.partitions)

    def _share(self, number: int) -> bytes:
        mine = cp.TopicPartition(topic=self.topic, partitions=[number])
        return encode_versioned(cp.ConsumerProtocolAssignment(assigned_partitions=[mine]), 1)


KINDS: Final[dict[str, type[Member]]] = {"classic": ClassicMember, "consumer": NewMember}


async def heartbeats(
    bootstrap: str, topic: str, kind: type[Member], groups: int, each: int, seconds: float, pid: int
) -> dict[str, float]:
    """Have `groups` of `each` members settle, then beat for `seconds`: the broker's processor time meanwhile.

    Every member has a connection of its own, and a partition of the topic, which has `each`.

    Raises:
        TimeoutError: they did not settle within four minutes.
        RefusedError: a member was refused.
    """
    names = [f"beats-{kind.__name__}-{number}" for number in range(groups)]
    members = [kind(await Connection.open(bootstrap), name, topic) for name in names for _ in range(each)]
    async with asyncio.timeout(_SETTLED_WITHIN_S), asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(_settle([member for member in members if member.group == name]))

    async def beat(member: Member, delay_s: float) -> int:
        await asyncio.sleep(delay_s)
        for count in itertools.count():
            if loop.time() >= ends_at:
                return count
            began = loop.time()
            await member.step()
            await asyncio.sleep(max(0.0, member.interval_s - (loop.time() - began)))
        raise AssertionError("counting has no end")

    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    broker = psutil.Process(pid)
    before = _cpu_seconds(broker)
    spread = [kind.interval_s * number / len(members) for number in range(len(members))]
    beats = await asyncio.gather(*(beat(member, delay_s) for member, delay_s in zip(members, spread, strict=True)))
    used = _cpu_seconds(broker) - before
    if not all(member.settled for member in members):
        raise RefusedError(f"{sum(not member.settled for member in members)} members lost their place while they beat")
    return {"cpu_share": 100 * used / seconds, "beats_per_s": sum(beats) / seconds}


async def _settle(members: list[Member]) -> None:
    """Until each holds something and nothing is asked of any; together they hold as many partitions as they are."""

    async def follow(member: Member) -> None:
        while not all_settled():
            await member.step()
            await asyncio.sleep(0 if not member.settled else 0.5)

    def all_settled() -> bool:
        held = {number for member in members for number in member.partitions}
        return len(held) == len(members) and all(member.settled for member in members)

    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(follow(member))


async def groups(
    bootstrap: str, topic: str, kind: type[Member], warm_up: int, count: int, partitions: int, pid: int
) -> dict[str, float]:
    """Megabytes that the broker grows by for `count` groups of one member, with offsets for `partitions` each."""
    connections = [await Connection.open(bootstrap) for _ in range(20)]
    broker = psutil.Process(pid)
    numbers = itertools.count()

    async def make(connection: Connection, upto: int) -> None:
        for number in numbers:
            if number >= upto:
                return
            member = kind(connection, f"group-{kind.__name__}-{number}", topic)
            while not member.settled:
                await member.step()
            await _commit(member, partitions)

    async def make_all(upto: int) -> None:
        async with asyncio.timeout(_SETTLED_WITHIN_S), asyncio.TaskGroup() as tasks:
            for connection in connections:
                tasks.create_task(make(connection, upto))
        await asyncio.sleep(1.0)

    await make_all(warm_up)
    numbers = itertools.count(warm_up)
    before = broker.memory_info().rss
    await make_all(warm_up + count)
    grown = broker.memory_info().rss - before
    for connection in connections:
        await connection.close()
    return {"megabytes": grown / 1e6}


async def _commit(member: Member, partitions: int) -> None:
    offsets = [
        oc.OffsetCommitRequestPartition(partition_index=number, committed_offset=number, committed_metadata="")
        for number in range(partitions)
    ]
    member_id, epoch = member.identity
    request = oc.OffsetCommitRequest(
        group_id=member.group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[oc.OffsetCommitRequestTopic(name=member.topic, partitions=offsets)],
    )
    (topic,) = (await member.connection.ask(request, 9)).topics
    if codes := {answer.error_code for answer in topic.partitions} - {0}:
        raise RefusedError(f"the offsets of {member.group} were refused: {codes}")


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def run(given: argparse.Namespace) -> dict[str, float]:
    """Make the coordinators' topic, then what was asked for."""
    connection = await Connection.open(given.bootstrap)
    found = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["first"])
    for _ in range(200):
        if not (await connection.ask(found, 4)).coordinators[0].error_code:
            break
        await asyncio.sleep(0.1)
    await connection.close()
    kind = KINDS[given.protocol]
    if given.what == "heartbeats":
        amounts = (given.groups, given.members, given.seconds, given.pid)
        return await heartbeats(given.bootstrap, given.topic, kind, *amounts)
    return await groups(given.bootstrap, given.topic, kind, 50, given.groups, given.partitions, given.pid)


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.members_load")
    parser.add_argument("what", choices=["heartbeats", "groups"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--protocol", choices=list(KINDS), required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--members", type=int, default=1, help="of each group")
    parser.add_argument("--partitions", type=int, default=10, help="with committed offsets, of each group")
    parser.add_argument("--seconds", type=float, default=30.0)
    print(json.dumps(asyncio.run(run(parser.parse_args(arguments)))))


if __name__ == "__main__":
    main(sys.argv[1:])
