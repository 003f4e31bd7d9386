"""The controller's connections to the brokers: one queue for each, sent in order, one at a time, until it is answered.

A request without an answer is sent again, and so is one that a broker refused as a whole, since it is not repeated
otherwise: brokers recognize older and repeated requests by their epochs. A request that triggers a defect of the broker
again and again is dropped, so that the broker receives the next ones.

A broken connection is opened again at once. Where connections are refused, the process has ended, long before its
session does (ADR 16).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerRefused, BrokerUnavailable
from ottla.client.sockets import Connect
from ottla.cluster.controller_requests import Request
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.tasks import supervised

log = logging.getLogger(__name__)

VERSIONS: Final = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}
"""The newest of Kafka 3.9."""
FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 0.5
_FOR_GOOD: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
"""Refusals of what another controller, or the broker's next registration, has overtaken."""

ATTEMPTS: Final = 12
"""At a request that a broker answers with UNKNOWN_SERVER_ERROR: about five seconds, in which a passing fault passes."""
REFUSALS: Final = 2
"""Refusals in a row after which a broker counts as ended: one refusal may meet a broker that is rebinding its port."""

Listens = Callable[[BrokerId, bool], None]
"""Called when a broker's address refuses connections, and when it accepts them again."""
Answered = Callable[[BrokerId, LeaderAndIsrRequest, LeaderAndIsrResponse], None]
"""Called with answers in which brokers report failures."""


class BrokerChannel:
    """To one broker, in one of its epochs."""

    def __init__(
        self,
        broker: BrokerImage,
        new_client: Callable[[Callable[[], None]], AsyncConnection],
        timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        answered: Answered,
        listens: Listens,
    ) -> None:
        """`new_client` makes a client that calls its argument when the broker breaks the connection."""
        self.broker = broker
        self._client = new_client(self._lost)
        self._timeout_s = timeout_s
        self._loop = loop
        self._answered = answered
        self._listens = listens
        self._queue: deque[Request] = deque()
        self._woken = asyncio.Event()
        self._is_cut_off = False
        self._open_again_at = 0.0
        """A broker that has no room for another connection takes it, and hangs up at once."""
        self._refusals = 0
        self._problem = ""
        """Why it was not reached the last time."""
        self._is_silent = False
        self._task = supervised(loop, self._run(), f"controller to broker {broker.broker_id}")

    def send(self, requests: Sequence[Request]) -> None:
        """Queue requests, behind those that are on their way."""
        self._queue += requests
        self._woken.set()

    def close(self) -> None:
        """The broker is gone, or this one is not the controller any more."""
        self._task.cancel()
        self._client.close()

    def _lost(self) -> None:
        self._is_cut_off = True
        self._woken.set()

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._queue or self._is_cut_off:
                if self._queue:
                    await self._until_answered(self._queue[0])
                    self._queue.popleft()
                else:
                    await asyncio.sleep(max(0.0, self._open_again_at - self._loop.time()))
                    await self._until_reached()
                    self._open_again_at = self._loop.time() + LAST_PAUSE_S

    async def _until_reached(self) -> None:
        """Until there is a connection."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._is_cut_off = False
            try:
                await self._client.open(timeout_s=self._timeout_s)
            except BrokerUnavailable as error:
                self._see_whether_refused(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LAST_PAUSE_S)
            else:
                self._reached()
                return

    async def _until_answered(self, request: Request) -> None:
        """Until the broker has taken it, or will not."""
        pause_s = FIRST_PAUSE_S
        failures = 0
        while True:
            await self._until_reached()
            try:
                response = await self._client.ask(request, VERSIONS[type(request)], timeout_s=self._timeout_s)
            except BrokerUnavailable as error:
                log.info("sending metadata to broker %d failed; retrying: %s", self.broker.broker_id, error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LAST_PAUSE_S)
                continue
            if response.error_code:
                code = ErrorCode(response.error_code)
                log.warning("broker %d refuses %s: %s", self.broker.broker_id, type(request).__name__, code.name)
                failures += code is ErrorCode.UNKNOWN_SERVER_ERROR
                if failures == ATTEMPTS:
                    log.error(
                        "broker %d failed on %s %d times; the request is not sent again. The broker's log "
                        "shows the cause; a restart of the broker sends it everything",
                        self.broker.broker_id,
                        type(request).__name__,
                        ATTEMPTS,
                    )
                elif code not in _FOR_GOOD:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, LAST_PAUSE_S)
                    continue
            elif isinstance(request, LeaderAndIsrRequest):
                self._answered(self.broker.broker_id, request, response)
            return

    def _see_whether_refused(self, error: BrokerUnavailable) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            log.info("broker %d gets no metadata, and is asked again: %s", self.broker.broker_id, error)
        self._refusals = self._refusals + 1 if isinstance(error, BrokerRefused) else 0
        if self._refusals == REFUSALS and not self._is_silent:
            self._is_silent = True
            self._listens(self.broker.broker_id, False)

    def _reached(self) -> None:
        self._refusals = 0
        self._problem = ""
        if self._is_silent:
            self._is_silent = False
            self._listens(self.broker.broker_id, True)


class ControllerChannels:
    """All of them; brokers that come get one, those that go lose theirs."""

    def __init__(
        self,
        controller_id: BrokerId,
        listener: str,
        timeout_s: float,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        answered: Answered,
        listens: Listens,
    ) -> None:
        self._client_id = f"controller-{controller_id}"
        self._listener = listener
        self._timeout_s = timeout_s
        self._loop = loop
        self._connect = connect
        self._answered = answered
        self._listens = listens
        self._channels: dict[BrokerId, BrokerChannel] = {}
        self._is_closed = False

    def send(self, planned: Mapping[BrokerId, Sequence[Request]], brokers: Mapping[BrokerId, BrokerImage]) -> None:
        """Send each broker its requests; `brokers` are those that are alive. Nothing is sent after `close`."""
        if self._is_closed:
            return
        for broker_id, channel in list(self._channels.items()):
            now = brokers.get(broker_id)
            if now is None or now.epoch != channel.broker.epoch or now.endpoints != channel.broker.endpoints:
                del self._channels[broker_id]
                channel.close()
        for broker_id, requests in planned.items():
            found = self._channels.get(broker_id) or self._open(brokers[broker_id])
            if found is not None:
                found.send(requests)

    def _open(self, broker: BrokerImage) -> BrokerChannel | None:
        address = broker.endpoints.get(self._listener)
        if address is None:
            log.error("broker %d has no listener %s, over which brokers speak here", broker.broker_id, self._listener)
            return None

        def new_client(lost: Callable[[], None]) -> AsyncConnection:
            return AsyncConnection(*address, self._client_id, connect=self._connect, lost=lost)

        channel = BrokerChannel(broker, new_client, self._timeout_s, self._loop, self._answered, self._listens)
        self._channels[broker.broker_id] = channel
        return channel

    def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
