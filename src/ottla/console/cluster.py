"""What the pages show of a cluster, asked by its own protocol: of Ottla and of Apache Kafka alike."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupState, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ottla.admin import AsyncAdmin, Cluster, NotFound, Partition, Rebalance, UnsupportedRequest
from ottla.client.errors import ClientError
from ottla.console.sharing import Shared
from ottla.console.trends import Trends

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
LAGS_S: Final = 5.0
PAGE: Final = 50
"""Rows of a list; offsets and sizes are asked for those of one page only."""
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
CLASSIC: Final = "classic"
"""The only type that brokers before Kafka 3.8 have, which name none."""


class Topic(NamedTuple):
    """A topic in the list."""

    name: str
    partitions: int
    replicas: int
    offline: int
    behind: int

    @property
    def is_internal(self) -> bool:
        """Whether brokers made it for themselves."""
        return self.name.startswith("__")


class PartitionRow(NamedTuple):
    """A partition on its topic's page; offsets are None where no leader answered."""

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int | None
    end: int | None
    size_bytes: int | None


class Setting(NamedTuple):
    """A setting of a topic."""

    name: str
    value: str
    is_changed: bool


class Group(NamedTuple):
    """A group in the list."""

    name: str
    kind: str
    state: str


class Member(NamedTuple):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...]


class LagRow(NamedTuple):
    """How far a group is in a partition; `lag` None: the partition is gone, or nothing is committed."""

    partition: Partition
    committed: int | None
    end: int | None
    lag: int | None


class GroupPage(NamedTuple):
    """A group on a page of its own."""

    name: str
    kind: str
    state: str
    members: list[Member]
    lags: list[LagRow]
    history: list[Rebalance] | None
    """None where the brokers keep none."""


class Page(NamedTuple):
    """A part of a list."""

    rows: list[Any]
    number: int
    total: int

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max((self.total - 1) // PAGE, 0)


class ClusterView:
    """Asks one cluster. On one event loop; `close` it."""

    def __init__(self, bootstrap: str, properties: Mapping[str, Any]) -> None:
        """`properties`: security and time-outs, as librdkafka names them; `oauth_cb` as confluent-kafka has it."""
        self.bootstrap = bootstrap
        self.client_properties: dict[str, Any] = {"bootstrap.servers": bootstrap, **properties}
        self._admin = AsyncAdmin(bootstrap, client_id="ottla-console", timeout_s=TIMEOUT_S, properties=properties)
        self._admin_lock = asyncio.Lock()
        self._dear_admin = AsyncAdmin(bootstrap, client_id="ottla-console", timeout_s=TIMEOUT_S, properties=properties)
        self._dear_lock = asyncio.Lock()
        self.library = AdminClient({**self.client_properties, "client.id": "ottla-console"})
        self.shared = Shared()
        self.trends = Trends()

    def close(self) -> None:
        """Hang up."""
        self.trends.close()
        self._admin.close()
        self._dear_admin.close()
        # else it would log in again and again, also with a token that has ended, until its memory is collected
        self.library.__exit__(None, None, None)

    async def reconnect(self) -> None:
        """Log in anew with the next requests: brokers end connections with the token of their login (KIP-368)."""
        for lock, admin in ((self._admin_lock, self._admin), (self._dear_lock, self._dear_admin)):
            async with lock:  # nothing is under way
                admin.close()

    def forget(self) -> None:
        """Ask anew: something was changed."""
        self.shared.forget()

    async def wait(self, future: "Future[T]") -> T:
        """The result of a request by `library`. Raises KafkaException, TimeoutError."""
        async with asyncio.timeout(TIMEOUT_S + 5):
            return await asyncio.wrap_future(future)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncAdmin]:
        """The administration that the library lacks, for one request at a time.

        Raises TimeoutError: each of those before may wait for brokers that are silent as long as that.
        """
        async with asyncio.timeout(TIMEOUT_S):
            await self._admin_lock.acquire()
        try:
            yield self._admin
        finally:
            self._admin_lock.release()

    async def quick(self, call: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """The answer to one of `admin`'s requests. Raises ClientError."""
        async with self.admin() as admin:
            return await call(admin)

    async def dear(self, call: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """A question of many requests, over connections of its own, so that no other page waits for it.

        Raises ClientError.
        """
        async with self._dear_lock:
            return await call(self._dear_admin)

    # -- topics ------------------------------------------------------------------------------------------------------

    async def cluster(self) -> Cluster:
        """Brokers and partitions. Raises ClientError."""
        return await self.shared.get("cluster", self._describe_cluster)

    async def cluster_of(self, topics: Iterable[str]) -> Cluster:
        """Brokers, and the partitions of some topics only. Raises ClientError."""
        names = tuple(sorted(set(topics)))
        if not names:
            return await self.cluster()
        return await self.shared.get(
            ("cluster of", names), lambda: self.quick(lambda admin: admin.describe_cluster(names))
        )

    async def _describe_cluster(self) -> Cluster:
        return await self.quick(lambda admin: admin.describe_cluster())

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        return await self.shared.get("topics", self._topics)

    async def _topics(self) -> list[Topic]:
        cluster = await self.cluster()
        # partitions, replicas, and how many are offline and behind: tens of thousands of partitions take their time
        counts: dict[str, list[int]] = {}
        for partition, state in cluster.partitions.items():
            found = counts.get(partition.topic)
            if found is None:
                found = counts[partition.topic] = [0, 0, 0, 0]
            replicas = len(state.replicas)
            found[0] += 1
            found[1] = max(found[1], replicas)
            found[2] += state.leader is None
            found[3] += len(state.in_sync) < replicas
        return [Topic(name, *counts[name]) for name in sorted(counts)]

    async def topics_page(self, query: str, state: str, number: int, *, internal: bool) -> Page:
        """The topics whose name contains the query: all, or those that are `offline` or `behind`."""
        wanted = query.lower()

        async def find() -> list[Topic]:
            return [
                topic
                for topic in await self.topics()
                if wanted in topic.name.lower()
                and (internal or not topic.is_internal or state)
                and (state != "offline" or topic.offline)
                and (state != "behind" or topic.behind)
            ]

        return page_of(await self.shared.get(("found topics", wanted, state, internal), find), number)

    async def partitions(self, topic: str) -> list[PartitionRow]:
        """The partitions of a topic, with their offsets and sizes; empty if there is none of this name."""
        return await self.shared.get(("partitions", topic), lambda: self._partitions(topic))

    async def _partitions(self, topic: str) -> list[PartitionRow]:
        cluster = await self.cluster_of([topic])
        states = cluster.partitions
        led = [each for each, state in states.items() if state.leader is not None]
        firsts, ends = await asyncio.gather(self.offsets(led, EARLIEST), self.offsets(led))
        holders: dict[int, list[Partition]] = defaultdict(list)
        for each, state in states.items():
            if state.leader is not None:
                holders[state.leader].append(each)
        held = await self.quick(lambda admin: admin.describe_replicas(cluster, holders))
        sizes = {each: replica.size_bytes for (_, each), replica in held.items()}
        rows = [
            PartitionRow(
                each.partition,
                state.leader,
                state.replicas,
                state.in_sync,
                firsts.get(each),
                ends.get(each),
                sizes.get(each),
            )
            for each, state in sorted(states.items())
        ]
        trend, now = self.trends.of(("topic", topic)), self.trends.now()
        trend.bytes.add(now, sum(each.size_bytes or 0 for each in rows))
        trend.records.add(now, sum((each.end or 0) - (each.first or 0) for each in rows))
        return rows

    async def offsets(
        self, partitions: Iterable[Partition], spec: OffsetSpec | None = None, *, committed: bool = False
    ) -> dict[Partition, int]:
        """An offset of each partition, by default its end; without those that cannot be asked."""
        asked = {TopicPartition(*each): spec or LATEST for each in partitions}
        if not asked:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self.library.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
        answers = await asyncio.gather(*map(self.wait, futures.values()), return_exceptions=True)
        return {
            Partition(each.topic, each.partition): answer.offset
            for each, answer in zip(futures, answers, strict=True)
            if not isinstance(answer, BaseException)
        }

    async def newest_ms(self, partition: Partition) -> int | None:
        """The largest timestamp of a partition; None if it has none, or its brokers do not know."""
        asked = {TopicPartition(*partition): OffsetSpec.max_timestamp()}  # type: ignore[no-untyped-call]
        (future,) = self.library.list_offsets(asked, request_timeout=TIMEOUT_S).values()
        try:
            timestamp = (await self.wait(future)).timestamp
        except KafkaException:
            return None
        return None if timestamp is None or timestamp < 0 else int(timestamp)

    async def settings(self, topic: str) -> list[Setting]:
        """The settings of a topic, those that differ from their default first."""
        return await self.shared.get(("settings", topic), lambda: self._settings(topic))

    async def _settings(self, topic: str) -> list[Setting]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self.library.describe_configs([resource], request_timeout=TIMEOUT_S).values()
        entries = await self.wait(future)
        found = [
            Setting(name, "(hidden)" if entry.is_sensitive else str(entry.value), not entry.is_default)
            for name, entry in entries.items()
        ]
        return sorted(found, key=lambda each: (not each.is_changed, each.name))

    # -- groups ------------------------------------------------------------------------------------------------------

    async def groups(self) -> list[Group]:
        """The groups of every kind, by name."""
        return await self.shared.get("groups", self._groups)

    async def _groups(self) -> list[Group]:
        listed = await self.quick(lambda admin: admin.list_groups())
        return [Group(each.group, each.kind.lower() or CLASSIC, each.state) for each in listed]

    async def groups_page(self, query: str, number: int) -> Page:
        """The groups whose name contains the query."""
        wanted = query.lower()
        return page_of([group for group in await self.groups() if wanted in group.name.lower()], number)

    async def group_lags(self, groups: Sequence[Group]) -> dict[str, int]:
        """The lag of these groups in records, where it is known; share groups have theirs on their own pages."""
        names = tuple(group.name for group in groups if group.kind != "share")
        return await self.shared.get(("lags", names), lambda: self._group_lags(names), LAGS_S)

    async def _group_lags(self, names: Sequence[str]) -> dict[str, int]:
        committed = await self.dear(lambda admin: admin.list_offsets_of_groups(names))
        read = {partition for offsets in committed.values() for partition in offsets}
        cluster = await self.cluster_of(each.topic for each in read)
        ends = await self.dear(lambda admin: admin.list_leader_ends(cluster, read, committed=True))
        return {
            name: sum(max(ends[each] - offset, 0) for each, offset in offsets.items() if each in ends)
            for name, offsets in committed.items()
        }

    async def group(self, name: str) -> GroupPage | None:
        """A group with its members, lag and history; None if there is none of this name."""
        return await self.shared.get(("group", name), lambda: self._group(name))

    async def _group(self, name: str) -> GroupPage | None:
        listed = next((group for group in await self.groups() if group.name == name), None)
        if listed is None:
            return None
        if listed.kind == "share":
            return await self._share_group(listed)
        committed = await self.quick(lambda admin: admin.list_group_offsets(name))
        members = await self._members(name) if listed.kind != "streams" else []
        lags = await self._lags(committed)
        ends = {each.partition: each.end for each in lags if each.end is not None}
        self.trends.of(("group", name)).add(committed, ends, self.trends.now())
        return GroupPage(name, listed.kind, listed.state, members, lags, await self._history(name))

    async def _members(self, name: str) -> list[Member]:
        (future,) = self.library.describe_consumer_groups([name], request_timeout=TIMEOUT_S).values()
        described = await self.wait(future)
        if described.state == ConsumerGroupState.DEAD:
            return []
        return [
            Member(
                member.member_id,
                member.client_id,
                member.host.removeprefix("/"),
                tuple(
                    Partition(each.topic, each.partition)
                    for each in (member.assignment.topic_partitions if member.assignment else ())
                ),
            )
            for member in described.members
        ]

    async def _lags(self, committed: Mapping[Partition, int]) -> list[LagRow]:
        cluster = await self.cluster_of(each.topic for each in committed)
        ends = await self.dear(lambda admin: admin.list_leader_ends(cluster, committed, committed=True))
        return [
            LagRow(each, offset, ends.get(each), None if each not in ends else max(ends[each] - offset, 0))
            for each, offset in sorted(committed.items())
        ]

    async def _share_group(self, listed: Group) -> GroupPage:
        described = await self.quick(lambda admin: admin.describe_share_group(listed.name))
        progress = await self.quick(lambda admin: admin.list_share_group_offsets(listed.name))
        members = [
            Member(each.member, each.client, each.host.removeprefix("/"), each.assigned) for each in described.members
        ]
        lags = [LagRow(each, found.start, None, found.lag) for each, found in sorted(progress.items())]
        if all(each.lag is not None for each in lags):
            self.trends.of(("group", listed.name)).records.add(self.trends.now(), sum(each.lag or 0 for each in lags))
        return GroupPage(listed.name, "share", described.state, members, lags, await self._history(listed.name))

    async def _history(self, name: str) -> list[Rebalance] | None:
        try:
            return list(reversed(await self.quick(lambda admin: admin.describe_group_history(name))))
        except UnsupportedRequest:
            return None
        except (NotFound, ClientError):
            return []


def page_of(rows: list[Any], number: int) -> Page:
    """The page of this number, the last one for a number beyond it."""
    last = max((len(rows) - 1) // PAGE, 0)
    number = min(max(number, 0), last)
    return Page(rows[number * PAGE : (number + 1) * PAGE], number, len(rows))
