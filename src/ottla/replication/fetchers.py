"""Which broker each partition is copied from: a fetcher for each of them (`fetcher.py`)."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.sockets import Connect
from ottla.ids import BrokerId, TopicId, TopicPartition
from ottla.replication.divergence import StartOver
from ottla.replication.fetcher import Address, LeaderFetcher

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.replication.decisions.throttles import Throttle
    from ottla.replication.partition import Partition

THREADS: Final = 2


class ReplicaFetchers:
    """One fetcher for each broker that this one follows. On the loop's thread."""

    def __init__(
        self,
        config: "BrokerConfig",
        address: Address,
        broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        *,
        connect: Connect,
        throttle: "Throttle",
        full_directories: Callable[[], Collection[Path]] = tuple,
        start_over: StartOver,
    ) -> None:
        self._broker_id = config.node_id
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla truncate")
        self._may_begin = asyncio.Event()
        self._may_begin.set()
        self._new_fetcher: Callable[[BrokerId], LeaderFetcher] = lambda leader: LeaderFetcher(
            leader,
            config,
            address,
            broker_epoch,
            loop,
            connect=connect,
            throttle=throttle,
            threads=self._threads,
            full_directories=full_directories,
            start_over=start_over,
            may_begin=self._may_begin,
        )
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}
        self._sources: dict[TopicPartition, BrokerId] = {}
        self._is_closed = False

    def follow(self, partition: "Partition", topic_id: TopicId) -> None:
        """Copy from `partition.leader` from now on, in its leader epoch."""
        self.stop(partition)
        leader = partition.leader
        if self._is_closed or leader < 0 or leader == self._broker_id:
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._new_fetcher(leader)
        self._sources[partition.topic_partition] = leader
        fetcher.add(partition, topic_id)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin to copy from other brokers only afterwards, for a broker that is given all of its partitions: the first
        fetch names all of them then, and leaders look at each once."""
        self._may_begin.clear()
        try:
            yield
        finally:
            self._may_begin.set()

    def stop(self, partition: "Partition") -> None:
        """Stop copying it."""
        leader = self._sources.pop(partition.topic_partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(partition.topic_partition)
        if fetcher.is_idle:
            del self._fetchers[leader]
            fetcher.close()

    async def close(self) -> None:
        """Stop copying for good; what has been fetched is in the logs."""
        self._is_closed = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._sources.clear()
        for fetcher in fetchers:
            fetcher.close()
        await asyncio.gather(*(fetcher.ended() for fetcher in fetchers))
        self._threads.shutdown()
