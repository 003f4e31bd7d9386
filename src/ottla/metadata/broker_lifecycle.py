"""A broker's registration with the active controller of a quorum, and its heartbeats (KIP-631).

    register --> registered, fenced --> caught up --> unfenced --> shutting down --> may stop
                      ^                                  |
                      +------ fenced: no heartbeat was answered within broker.session.timeout.ms

While it is fenced, or no heartbeat that it sent within nearly the session timeout has been answered, others may have
been elected in its place: `holds` is False then, and `ReplicaManager` acknowledges only what cannot be lost (ADR 58).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.cluster.broker_sessions import lease_ms
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.metadata.controller_channel import ControllerChannel
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

log = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = -1
RETRY_S: Final = 0.2
HURRY_S: Final = 0.05
"""Pause between heartbeats while something depends on the answer: a start, or a shutdown."""
_ANOTHER: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
"""The controller no longer knows this registration."""
_FOR_GOOD: Final = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION}
)
"""Refusals of a registration that trying again does not change."""


class BrokerLifecycle:
    """The registration of one broker. On the loop's thread."""

    def __init__(
        self,
        config: "BrokerConfig",
        channel: ControllerChannel,
        loop: asyncio.AbstractEventLoop,
        *,
        boottime: Callable[[], float],
        registration: Callable[[UUID], BrokerRegistrationRequest],
        registered: Callable[[int], None],
        offset: Callable[[], int],
        failed_directories: Callable[[], list[UUID]],
        cordoned_directories: Callable[[], list[UUID] | None],
        stop_broker: Callable[[str], None],
        moved_as: UUID | None = None,
    ) -> None:
        """`boottime` is that of the clock: the lease of a machine that sleeps ends all the same. `registration` makes
        the request for an incarnation, and `registered` is called with each epoch that is answered; `offset` is how far
        this broker has followed the log; `cordoned_directories` is None for a cluster whose metadata.version has no
        such thing; `stop_broker` is called with the reason when another broker has this one's number; `moved_as` is the
        incarnation under which a broker that comes from ZooKeeper is registered and unfenced already."""
        self._config = config
        self._channel = channel
        self._loop = loop
        self._boottime = boottime
        self._registration = registration
        self._registered = registered
        self._offset = offset
        self._failed_directories = failed_directories
        self._cordoned_directories = cordoned_directories
        self._stop_broker = stop_broker
        self._session_s = config.broker_session_timeout_ms / 1000
        self._lease_s = lease_ms(config) / 1000
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._changed = asyncio.Event()
        self._answered_at = float("-inf")
        """When the newest answered heartbeat was sent."""
        self.incarnation_id: Final = moved_as or uuid4()
        self.broker_epoch = UNKNOWN_EPOCH
        self.is_fenced = True
        self.is_caught_up = False
        """Whether the controller takes this broker for one that has followed its log."""
        self.wants_fence = moved_as is None
        """Stay fenced: this broker does not have the partitions of the log yet."""
        self.wants_shut_down = False
        self.may_shut_down = False

    def holds(self) -> bool:
        """Whether certainly no other broker has been elected in this one's place at this moment."""
        return not self.is_fenced and self._boottime() - self._answered_at < self._lease_s

    async def register(self) -> None:
        """Register, trying for initial.broker.registration.timeout.ms.

        Raises `ApiError` with the controller's refusal, or REQUEST_TIMED_OUT.
        """
        timeout_s = self._config.initial_broker_registration_timeout_ms / 1000
        deadline = self._loop.time() + timeout_s
        code, problem = ErrorCode.REQUEST_TIMED_OUT, "no active controller has answered"
        while (left_s := deadline - self._loop.time()) > 0:
            try:
                answer = await self._channel.ask(self._registration(self.incarnation_id), timeout_s=left_s)
            except ClientError as error:
                code, problem = ErrorCode.REQUEST_TIMED_OUT, str(error)
            else:
                if not answer.error_code:
                    self.broker_epoch = answer.broker_epoch
                    log.info("broker %d is registered in epoch %d", self._config.node_id, self.broker_epoch)
                    self._registered(self.broker_epoch)
                    return
                code = ErrorCode(answer.error_code)
                problem = _reason(code, self._config)
                log.warning("the controller refuses the registration of this broker: %s", problem)
                if code in _FOR_GOOD:
                    break
            await asyncio.sleep(RETRY_S)
        raise ApiError(code, f"broker {self._config.node_id} cannot register: {problem}")

    def start(self) -> None:
        """Send heartbeats from now on."""
        self._task = supervised(self._loop, self._run(), "heartbeats to the controller")

    async def close(self) -> None:
        """Stop the heartbeats."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def hurry(self) -> None:
        """Send a heartbeat at once: something has changed that the controller has to know."""
        self._hurry.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is true that an answer of the controller decides."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def _run(self) -> None:
        while True:
            self._hurry.clear()
            pause_s = self._config.broker_heartbeat_interval_ms / 1000
            try:
                if not await self._beat():
                    pause_s = RETRY_S
                elif self._waits_for_controller():
                    pause_s = min(HURRY_S, pause_s)
            except BrokerUnavailable as problem:
                log.warning("a heartbeat was not answered: %s", problem)
                pause_s = RETRY_S
            except OttlaError as problem:
                log.error("a heartbeat failed: %s", problem)
            try:
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    def _waits_for_controller(self) -> bool:
        return not self.is_caught_up or (self.is_fenced and not self.wants_fence) or self.wants_shut_down

    async def _beat(self) -> bool:
        """Send a heartbeat, and take the answer; whether the controller has accepted it. Raises `ClientError`."""
        sent_at = self._boottime()
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._offset(),
            want_fence=self.wants_fence,
            want_shut_down=self.wants_shut_down,
            offline_log_dirs=self._failed_directories(),
            cordoned_log_dirs=self._cordoned_directories(),
        )
        answer: BrokerHeartbeatResponse = await self._channel.ask(request, timeout_s=self._session_s)
        code = ErrorCode(answer.error_code)
        if code in _ANOTHER:
            await self._register_again(code)
            return False
        if code:
            log.warning("the controller refuses the heartbeat of this broker: %s", code.name)
            return False
        self._answered_at = sent_at
        self.is_caught_up = self.is_caught_up or answer.is_caught_up
        self._take_fence(fenced=answer.is_fenced)
        self.may_shut_down = self.may_shut_down or answer.should_shut_down
        self._changed.set()
        return True

    def _take_fence(self, *, fenced: bool) -> None:
        if fenced and not self.is_fenced and not self.wants_shut_down:
            log.warning("the controller has fenced this broker: no heartbeat reached it in time, and others lead")
        elif self.is_fenced and not fenced:
            log.info("broker %d is unfenced", self._config.node_id)
        self.is_fenced = fenced

    async def _register_again(self, code: ErrorCode) -> None:
        """The registration is gone: an operator has removed it, or another broker has taken the number."""
        log.warning("the controller does not know this broker's registration (%s); it registers again", code.name)
        self.is_fenced = True
        self.is_caught_up = False
        try:
            await self.register()
        except ApiError as refused:
            if refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION or refused.code in _FOR_GOOD:
                self._stop_broker(str(refused))
            raise


def _reason(code: ErrorCode, config: "BrokerConfig") -> str:
    reasons = {
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
            "another broker with this node.id is running, or one that was killed counts as alive for "
            f"{config.broker_session_timeout_ms} ms more: give this one another node.id, or wait"
        ),
        ErrorCode.INCONSISTENT_CLUSTER_ID: (
            "its log directories belong to another cluster than the controllers: see cluster.id in meta.properties, "
            "and controller.quorum.bootstrap.servers or controller.quorum.voters"
        ),
        ErrorCode.UNSUPPORTED_VERSION: (
            "the cluster's feature levels (`ottla cluster features` or kafka-features.sh describe) are not among those "
            "that this version of Ottla supports"
        ),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
            "the controllers do not let its principal do CLUSTER_ACTION: add it to their super.users, or an ACL"
        ),
    }
    return reasons.get(code, f"the controller answers {code.name}")
