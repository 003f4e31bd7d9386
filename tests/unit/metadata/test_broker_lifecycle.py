"""A broker's registration and heartbeats, before a controller that answers as it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.client.errors import BrokerUnavailable
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.metadata.broker_lifecycle import BrokerLifecycle
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

SETTINGS = {
    "broker.heartbeat.interval.ms": "10",
    "broker.session.timeout.ms": "3000",
    "initial.broker.registration.timeout.ms": "400",
}


class Controller:
    """Answers in the place of a channel."""

    def __init__(self) -> None:
        self.epochs = iter(range(7, 100))
        self.registrations: list[BrokerRegistrationRequest] = []
        self.beats: list[BrokerHeartbeatRequest] = []
        self.refusal = ErrorCode.NONE
        self.beat_error = ErrorCode.NONE
        self.is_away = False
        self.fences = False

    async def ask(self, request: Any, version: int | None = None, *, timeout_s: float) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            raise BrokerUnavailable("no active controller has answered")
        if isinstance(request, BrokerRegistrationRequest):
            self.registrations.append(request)
            if self.refusal:
                return BrokerRegistrationResponse(error_code=self.refusal)
            self.beat_error = ErrorCode.NONE
            return BrokerRegistrationResponse(broker_epoch=next(self.epochs))
        self.beats.append(request)
        return BrokerHeartbeatResponse(
            error_code=self.beat_error,
            is_caught_up=request.current_metadata_offset >= 7,
            is_fenced=self.fences or request.want_fence,
            should_shut_down=request.want_shut_down,
        )


class Story:
    """A lifecycle and what it runs against."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.controller = Controller()
        self.offset = 0
        self.slept_s = 0.0
        self.stopped: list[str] = []
        self.epochs: list[int] = []
        self.lifecycle = BrokerLifecycle(
            BrokerConfig(SETTINGS),
            self.controller,  # type: ignore[arg-type]  # as far as it is used
            loop,
            boottime=lambda: loop.time() + self.slept_s,
            registration=self._registration,
            registered=self.epochs.append,
            offset=lambda: self.offset,
            failed_directories=lambda: [UUID(int=9)],
            cordoned_directories=lambda: None,
            stop_broker=self.stopped.append,
        )

    def _registration(self, incarnation_id: UUID) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=1, cluster_id="c", incarnation_id=incarnation_id, listeners=[], features=[], rack=None
        )

    async def serve(self) -> None:
        """Register, and be unfenced."""
        await self.lifecycle.register()
        self.lifecycle.start()
        self.offset = 7
        await self.lifecycle.until(lambda: self.lifecycle.is_caught_up)
        self.lifecycle.wants_fence = False
        await self.lifecycle.until(lambda: not self.lifecycle.is_fenced)


def tell(story: Callable[[Story], Awaitable[None]]) -> None:
    async def run() -> None:
        told = Story(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(story(told), 20)
        finally:
            await told.lifecycle.close()

    asyncio.run(run())


def test_it_is_fenced_until_it_has_followed_the_log_and_holds_its_partitions() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        assert told.lifecycle.broker_epoch == 7
        assert told.lifecycle.holds()
        first, last = told.controller.beats[0], told.controller.beats[-1]
        assert (first.want_fence, last.want_fence) == (True, False)
        assert (last.broker_epoch, last.current_metadata_offset) == (7, 7)
        assert last.offline_log_dirs == [UUID(int=9)]

    tell(story)


def test_others_may_lead_once_no_heartbeat_was_answered_within_a_session_even_if_the_machine_slept() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        told.controller.is_away = True
        assert told.lifecycle.holds()
        told.slept_s = 2.1  # a session of three seconds, less half a fetch timeout of two
        assert not told.lifecycle.holds()
        told.controller.is_away = False
        answered = len(told.controller.beats)
        told.lifecycle.hurry()
        await told.lifecycle.until(lambda: len(told.controller.beats) > answered)
        assert told.lifecycle.holds()

    tell(story)


def test_a_broker_that_is_told_that_it_is_fenced_holds_nothing_until_it_is_unfenced() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        told.controller.fences = True
        await told.lifecycle.until(lambda: told.lifecycle.is_fenced)
        assert not told.lifecycle.holds()
        told.controller.fences = False
        await told.lifecycle.until(lambda: not told.lifecycle.is_fenced)
        assert told.lifecycle.holds()

    tell(story)


def test_it_registers_again_when_its_registration_is_gone() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        told.controller.beat_error = ErrorCode.BROKER_ID_NOT_REGISTERED
        await told.lifecycle.until(lambda: told.lifecycle.broker_epoch == 8 and not told.lifecycle.is_fenced)
        assert {request.incarnation_id for request in told.controller.registrations} == {told.lifecycle.incarnation_id}
        assert told.stopped == []

    tell(story)


def test_it_stops_when_another_broker_has_taken_its_number() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        told.controller.refusal = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        told.controller.beat_error = ErrorCode.STALE_BROKER_EPOCH
        while not told.stopped:
            await asyncio.sleep(0.01)
            assert not told.lifecycle.holds() or not told.stopped
        assert "another broker with this node.id is running" in told.stopped[0]

    tell(story)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another broker with this node.id is running"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "belong to another cluster"),
        (ErrorCode.UNSUPPORTED_VERSION, "feature levels"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "super.users"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "answers UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_refused_registration_names_what_to_do(refusal: ErrorCode, said: str) -> None:
    async def story(told: Story) -> None:
        told.controller.refusal = refusal
        with pytest.raises(ApiError, match=said) as refused:
            await told.lifecycle.register()
        assert refused.value.code is refusal
        is_final = refusal in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION)
        assert (len(told.controller.registrations) == 1) is is_final

    tell(story)


def test_without_a_controller_registering_ends() -> None:
    async def story(told: Story) -> None:
        told.controller.is_away = True
        with pytest.raises(ApiError, match="no active controller") as refused:
            await told.lifecycle.register()
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    tell(story)


def test_it_may_stop_when_the_controller_lets_it() -> None:
    async def story(told: Story) -> None:
        await told.serve()
        told.lifecycle.wants_shut_down = True
        told.lifecycle.hurry()
        await told.lifecycle.until(lambda: told.lifecycle.may_shut_down)
        assert told.controller.beats[-1].want_shut_down

    tell(story)
