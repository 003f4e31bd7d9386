"""A quorum controller over a log in memory, and brokers that are nothing but requests."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from uuid import UUID

from ottla.cluster.controller import NewTopic
from ottla.config import load
from ottla.ids import BrokerId, TopicName
from ottla.metadata.cluster_metadata import NotController
from ottla.metadata.quorum_controller import QuorumController, TakeOver
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.testing.memory_quorum import MemoryQuorum
from ottla.testing.simulation.loop import SimClock, SimLoop

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LEVELS = (
    ("metadata.version", 7, 30),
    ("transaction.version", 0, 2),
    ("group.version", 0, 1),
    ("share.version", 0, 1),
    ("streams.version", 0, 1),
    ("eligible.leader.replicas.version", 0, 1),
)
NODE = 3000


class ControllerAlone:
    """One active controller. Inside `run`, on a loop whose time is simulated."""

    def __init__(
        self,
        loop: SimLoop,
        node: MemoryQuorum | None = None,
        *,
        take_over: TakeOver | None = None,
        **settings: str,
    ) -> None:
        self.loop = loop
        self.node = node or MemoryQuorum(NODE)
        self.failures: list[str] = []
        self.replay = QuorumReplay(CLUSTER_ID, failed=self.failures.append)
        config, _ = load(
            None, {"node.id": str(NODE), **{key.replace("_", "."): text for key, text in settings.items()}}
        )
        self.controller = QuorumController(self.node, self.replay, config, SimClock(loop), take_over=take_over)

    async def start(self) -> None:
        """Begin the first term, and wait until it has begun."""
        self.controller.start()
        self.node.register(self.replay)
        await self.node.start()
        await self.until(lambda: self.controller.is_active)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something, for a minute of the simulated time at most."""
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.01)


def registration(broker_id: int, *, process: int = 1, **changes: Any) -> BrokerRegistrationRequest:
    """What a broker sends when it starts."""
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": UUID(int=(broker_id << 90) | (process << 80)),
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9000 + broker_id, security_protocol=0)],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high) for name, low, high in LEVELS
        ],
        "rack": None,
        "log_dirs": [UUID(int=(broker_id << 100) | 1 << 60)],
    }
    return BrokerRegistrationRequest(**(fields | changes))


class FakeBroker:
    """A broker that registers and sends heartbeats, every second until it is killed."""

    def __init__(self, alone: ControllerAlone, broker_id: int, *, process: int = 1) -> None:
        self._alone = alone
        self.broker_id = BrokerId(broker_id)
        self._process = process
        self.epoch = -1
        self.answers: list[BrokerHeartbeatResponse] = []
        self._beating: asyncio.Task[None] | None = None
        self.wants_shutdown = False

    async def start(self, **changes: Any) -> "FakeBroker":
        """Register, and be unfenced."""
        asked = registration(self.broker_id, process=self._process, **changes)
        self.epoch = await self._alone.controller.register_broker(asked)
        assert (await self.beat()).is_fenced is False
        self._beating = asyncio.create_task(self._beat())
        return self

    async def beat(self, **changes: Any) -> BrokerHeartbeatResponse:
        """One heartbeat."""
        fields: dict[str, Any] = {
            "broker_id": self.broker_id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": self._alone.replay.offset,
            "want_fence": False,
            "want_shut_down": self.wants_shutdown,
        }
        self.answers.append(await self._alone.controller.heartbeat(BrokerHeartbeatRequest(**(fields | changes))))
        return self.answers[-1]

    async def _beat(self) -> None:
        while not self.answers[-1].should_shut_down:
            await asyncio.sleep(1)
            with suppress(NotController):
                await self.beat()

    async def stopped(self) -> None:
        """Stop in order."""
        assert self._beating is not None
        self.wants_shutdown = True
        await self._beating

    def kill(self) -> None:
        """Send nothing any longer."""
        assert self._beating is not None
        self._beating.cancel()


async def three_brokers(alone: ControllerAlone) -> list[FakeBroker]:
    """Three brokers that are not fenced."""
    return [await FakeBroker(alone, number).start() for number in (1, 2, 3)]


async def create_topic(alone: ControllerAlone, name: str, *replicas: list[int], **configs: str) -> None:
    """A topic with these replicas for each of its partitions."""
    settings: dict[str, str | None] = {key.replace("_", "."): text for key, text in configs.items()}
    new = NewTopic(TopicName(name), assignments=list(enumerate(replicas)), configs=settings)
    (answer,) = await alone.controller.decisions.create_topics([new])
    if isinstance(answer, Exception):
        raise answer


def run(
    scenario: Callable[[ControllerAlone], Coroutine[Any, Any, None]],
    *,
    take_over: TakeOver | None = None,
    **settings: str,
) -> None:
    """Run a scenario beside an active controller."""
    loop = SimLoop(1)

    async def main() -> None:
        alone = ControllerAlone(loop, None, take_over=take_over, **settings)
        await alone.start()
        try:
            await scenario(alone)
            assert alone.failures == []
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await alone.controller.close()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
