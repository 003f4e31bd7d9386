"""One simulated machine: its disk, its clock, its place on the network, and the process of the broker on it."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import socket
from typing import cast

from ottla.broker import Broker
from ottla.config.loading import load
from ottla.metadata.quorum.formatting import Wishes, format_node
from ottla.platform import Platform
from ottla.replication.group_commit import GroupCommit
from ottla.testing.faulty_fs import FaultyFS, Survival
from ottla.testing.simulation.loop import Life, SimClock, SimLoop
from ottla.testing.simulation.network import SimNetwork
from ottla.testing.simulation.store import SimStore, SimZooKeeper

DATA: str = "/data"
METADATA: str = "/metadata"
"""Where nodes of a quorum keep its log."""
PORT: int = 9092


class SimMachine:
    """A machine named `name`, on which one broker can be started, stopped, killed, and started again."""

    def __init__(
        self, network: SimNetwork, zookeeper: SimZooKeeper | None, name: str, settings: dict[str, str]
    ) -> None:
        self.name = name
        self.network = network
        self.host = network.host(name)
        self.loop: SimLoop = network.loop
        self.clock = SimClock(self.loop)
        self.fs = FaultyFS(seed=self.loop.random.getrandbits(32), clock=self.clock)
        for directory in (DATA, METADATA):
            self.fs.make_directory(directory)
        self.fs.sync_directory("/")
        self.broker: Broker | None = None
        self.problem: BaseException | None = None
        """Why the broker on it could not start, or has ended."""
        self._zookeeper = zookeeper
        self._settings = {"log.dirs": DATA, "listeners": f"PLAINTEXT://{name}:{PORT}", **settings}
        self._life: Life | None = None
        self._is_to_stop: asyncio.Future[None] | None = None
        self._store: SimStore | None = None

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def is_paused(self) -> bool:
        return self._life is not None and self._life.is_paused

    def format(self, wishes: Wishes) -> None:
        """Format the directories of a node of a quorum. Raises InvalidConfig."""
        config, _ = load(None, self._settings)
        format_node(self.fs, self.clock, config, wishes)

    def start(self) -> None:
        """Start the broker's process; it serves when it is ready."""
        assert self._life is None, f"{self.name} runs already"
        life = self._life = Life(self.name)
        self.problem = None
        self._is_to_stop = self.loop.create_future()
        self.loop.start(life, self._run(life))

    async def _run(self, life: Life) -> None:
        is_to_stop = self._is_to_stop
        assert is_to_stop is not None
        config, _ = load(None, self._settings)
        broker = Broker(config, platform=self._as_platform())
        if self._zookeeper is None:
            broker.on_failure = self.stop
        try:
            async with broker:
                self.broker = broker
                await is_to_stop
        except Exception as problem:
            self.problem = problem
        finally:
            if self._life is life:
                self.broker, self._life = None, None

    def stop(self) -> None:
        """SIGTERM: the broker hands over and ends by itself, after a while."""
        if self._is_to_stop is not None and not self._is_to_stop.done():
            self._is_to_stop.set_result(None)

    def pause(self) -> None:
        """SIGSTOP: nothing of the process happens until `resume`; what is sent to it waits."""
        assert self._life is not None
        self._life.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self._life is not None:
            self.loop.resume(self._life)

    def kill(self) -> None:
        """SIGKILL: nothing of the process happens any more; what it has written stays."""
        self._end()
        self.fs.end_process()

    def lose_power(self, survival: Survival = Survival.RANDOM) -> None:
        """The same, and what was not synced is gone, torn or there, as it happens."""
        self._end()
        self.fs.crash(survival)

    def replace_disk(self) -> None:
        """Put in an empty one, while no process runs."""
        assert self._life is None, f"{self.name} runs"
        for name, is_directory, _ in list(self.fs.names(DATA)):
            path = f"{DATA}/{name}"
            if is_directory:
                self.fs.remove_tree(path)
            else:
                self.fs.remove(path)
        self.fs.sync_directory(DATA)

    def _end(self) -> None:
        if self._life is not None:
            self._life.end()
            self._life, self.broker = None, None
        if self._store is not None:
            self._store.forget()
            self._store = None
        self.host.stop()

    def _as_platform(self) -> Platform:
        return Platform(
            clock=self.clock,
            fs=self.fs,
            open_sockets=lambda _host, port: [cast("socket", self.host.listen(port))],
            connect=cast("Callable[..., object]", self.host.connect),  # type: ignore[arg-type]
            resolve=self._resolve,
            new_flusher=partial(
                GroupCommit,
                runner=ExecutorRunner(self.loop),
                side_runners=[ExecutorRunner(self.loop) for _ in range(2)],
                kernel=lambda: None,
                monotonic=self.loop.time,
            ),
            open_store=None if self._zookeeper is None else self._open_store,
        )

    async def _resolve(self, host: str) -> frozenset[str]:
        return frozenset((self.network.host(host).address,))

    def _open_store(self, _file: Path) -> SimStore:
        assert self._zookeeper is not None
        self._store = SimStore(self._zookeeper, self.name)
        return self._store


class ExecutorRunner:
    """Rounds of syncing, one after the other, in the loop's idea of a thread."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], None]) -> None:
        """Do the work some time from now."""
        self._queue.append(work)
        self._loop.run_in_executor(None, self._run_next)

    def close(self) -> None:
        """Do what is left at once: a thread would be waited for, and do nothing later."""
        while self._queue:
            self._run_next()

    def _run_next(self) -> None:
        if self._queue:
            self._queue.popleft()()
