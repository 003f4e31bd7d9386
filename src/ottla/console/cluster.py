"""What the pages show of a cluster, asked by its own protocol: of Ottla and of Apache Kafka alike."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupState, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ottla.admin import AsyncAdmin, Cluster, NotFound, Partition, Rebalance, UnsupportedRequest
from ottla.client.errors import ClientError
from ottla.console.sharing import Shared

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
PAGE: Final = 50
"""Rows of a list; offsets and sizes are asked for those of one page only."""
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")


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

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        """`properties`: security and time-outs, as librdkafka names them."""
        self.bootstrap = bootstrap
        self.client_properties: dict[str, Any] = {"bootstrap.servers": bootstrap, **properties}
        self._admin = AsyncAdmin(bootstrap, client_id="ottla-console", timeout_s=TIMEOUT_S, properties=properties)
        self._admin_lock = asyncio.Lock()
        self._library = AdminClient({**self.client_properties, "client.id": "ottla-console"})
        self._shared = Shared()

    def close(self) -> None:
        """Hang up."""
        self._admin.close()

    def forget(self) -> None:
        """Ask anew: something was changed."""
        self._shared.forget()

    @property
    def library(self) -> AdminClient:
        """The client library's administration, whose futures `wait` awaits."""
        return self._library

    async def wait(self, future: "Future[T]") -> T:
        """The result of a request by `library`. Raises KafkaException, TimeoutError."""
        return await self._ask(future)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AsyncAdmin]:
        """The administration that the library lacks, for one request at a time."""
        async with self._admin_lock:
            yield self._admin

    async def _ask(self, future: "Future[T]") -> T:
        async with asyncio.timeout(TIMEOUT_S + 5):
            return await asyncio.wrap_future(future)

    # -- topics ------------------------------------------------------------------------------------------------------

    async def cluster(self) -> Cluster:
        """Brokers and partitions. Raises ClientError."""
        return await self._shared.get("cluster", self._describe_cluster)

    async def _describe_cluster(self) -> Cluster:
        async with self._admin_lock:
            return await self._admin.describe_cluster()

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        return await self._shared.get("topics", self._topics)

    async def _topics(self) -> list[Topic]:
        cluster = await self.cluster()
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for partition, state in cluster.partitions.items():
            found = counts[partition.topic]
            found["partitions"] += 1
            found["replicas"] = max(found["replicas"], len(state.replicas))
            found["offline"] += state.leader is None
            found["behind"] += len(state.in_sync) < len(state.replicas)
        return [
            Topic(name, each["partitions"], each["replicas"], each["offline"], each["behind"])
            for name, each in sorted(counts.items())
        ]

    async def topics_page(self, query: str, state: str, number: int, *, internal: bool) -> Page:
        """The topics whose name contains the query: all, or those that are `offline` or `behind`."""
        wanted = query.lower()
        found = [
            topic
            for topic in await self.topics()
            if wanted in topic.name.lower()
            and (internal or not topic.is_internal or state)
            and (state != "offline" or topic.offline)
            and (state != "behind" or topic.behind)
        ]
        return _page(found, number)

    async def partitions(self, topic: str) -> list[PartitionRow]:
        """The partitions of a topic, with their offsets and sizes; empty if there is none of this name."""
        return await self._shared.get(("partitions", topic), lambda: self._partitions(topic))

    async def _partitions(self, topic: str) -> list[PartitionRow]:
        cluster = await self.cluster()
        states = {each: state for each, state in cluster.partitions.items() if each.topic == topic}
        led = [each for each, state in states.items() if state.leader is not None]
        firsts, ends = await asyncio.gather(self.offsets(led, EARLIEST), self.offsets(led))
        holders: dict[int, list[Partition]] = defaultdict(list)
        for each, state in states.items():
            if state.leader is not None:
                holders[state.leader].append(each)
        async with self._admin_lock:
            held = await self._admin.describe_replicas(cluster, holders)
        sizes = {each: replica.size_bytes for (_, each), replica in held.items()}
        return [
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

    async def offsets(
        self, partitions: Iterable[Partition], spec: OffsetSpec | None = None, *, committed: bool = False
    ) -> dict[Partition, int]:
        """An offset of each partition, by default its end; without those that cannot be asked."""
        asked = {TopicPartition(*each): spec or LATEST for each in partitions}
        if not asked:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._library.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
        answers = await asyncio.gather(*map(self._ask, futures.values()), return_exceptions=True)
        return {
            Partition(each.topic, each.partition): answer.offset
            for each, answer in zip(futures, answers, strict=True)
            if not isinstance(answer, BaseException)
        }

    async def settings(self, topic: str) -> list[Setting]:
        """The settings of a topic, those that differ from their default first."""
        return await self._shared.get(("settings", topic), lambda: self._settings(topic))

    async def _settings(self, topic: str) -> list[Setting]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._library.describe_configs([resource], request_timeout=TIMEOUT_S).values()
        entries = await self._ask(future)
        found = [
            Setting(name, "(hidden)" if entry.is_sensitive else str(entry.value), not entry.is_default)
            for name, entry in entries.items()
        ]
        return sorted(found, key=lambda each: (not each.is_changed, each.name))

    # -- groups ------------------------------------------------------------------------------------------------------

    async def groups(self) -> list[Group]:
        """The groups of every kind, by name."""
        return await self._shared.get("groups", self._groups)

    async def _groups(self) -> list[Group]:
        found: list[Group] = []
        for kind in GROUP_TYPES:
            try:
                async with self._admin_lock:
                    listed = await self._admin.list_groups(kind)
            except UnsupportedRequest:
                continue  # brokers that know no types
            found += [Group(each.group, kind, each.state) for each in listed]
        return sorted(found)

    async def groups_page(self, query: str, number: int) -> Page:
        """The groups whose name contains the query."""
        wanted = query.lower()
        return _page([group for group in await self.groups() if wanted in group.name.lower()], number)

    async def group(self, name: str) -> GroupPage | None:
        """A group with its members, lag and history; None if there is none of this name."""
        return await self._shared.get(("group", name), lambda: self._group(name))

    async def _group(self, name: str) -> GroupPage | None:
        listed = next((group for group in await self.groups() if group.name == name), None)
        if listed is None:
            return None
        if listed.kind == "share":
            return await self._share_group(listed)
        async with self._admin_lock:
            committed = await self._admin.list_group_offsets(name)
        members = await self._members(name) if listed.kind != "streams" else []
        return GroupPage(
            name, listed.kind, listed.state, members, await self._lags(committed), await self._history(name)
        )

    async def _members(self, name: str) -> list[Member]:
        (future,) = self._library.describe_consumer_groups([name], request_timeout=TIMEOUT_S).values()
        described = await self._ask(future)
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
        cluster = await self.cluster()
        ends = await self.offsets(
            [each for each in committed if (state := cluster.partitions.get(each)) and state.leader is not None],
            committed=True,
        )
        return [
            LagRow(each, offset, ends.get(each), None if each not in ends else max(ends[each] - offset, 0))
            for each, offset in sorted(committed.items())
        ]

    async def _share_group(self, listed: Group) -> GroupPage:
        async with self._admin_lock:
            described = await self._admin.describe_share_group(listed.name)
            progress = await self._admin.list_share_group_offsets(listed.name)
        members = [
            Member(each.member, each.client, each.host.removeprefix("/"), each.assigned) for each in described.members
        ]
        lags = [LagRow(each, found.start, None, found.lag) for each, found in sorted(progress.items())]
        return GroupPage(listed.name, "share", described.state, members, lags, await self._history(listed.name))

    async def _history(self, name: str) -> list[Rebalance] | None:
        try:
            async with self._admin_lock:
                return list(reversed(await self._admin.describe_group_history(name)))
        except UnsupportedRequest:
            return None
        except (NotFound, ClientError):
            return []


def _page(rows: list[Any], number: int) -> Page:
    last = max((len(rows) - 1) // PAGE, 0)
    number = min(max(number, 0), last)
    return Page(rows[number * PAGE : (number + 1) * PAGE], number, len(rows))
