"""What the controller says to a broker is said until it is taken, or has been overtaken; and whether it is there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.errors import BrokerRefused, BrokerUnavailable
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.metadata import controller_channels
from ottla.metadata.controller_channels import BrokerChannel
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class ScriptedClient:
    """Answers with these, one after the other; `asked` are the controller epochs it was asked with."""

    def __init__(self, *script: ErrorCode | Exception, openings: list[Exception | None] | None = None) -> None:
        """`openings`: what becomes of attempts to connect; all that follow go well."""
        self._script = list(script)
        self._openings = openings or []
        self.asked: list[int] = []
        self.opened = 0

    async def open(self, *, timeout_s: float) -> None:
        self.opened += 1
        problem = self._openings.pop(0) if self._openings else None
        if problem is not None:
            raise problem

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> UpdateMetadataResponse:
        self.asked.append(request.controller_epoch)
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return UpdateMetadataResponse(error_code=answer)

    def close(self) -> None:
        pass


def request(controller_epoch: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=1,
        topic_states=[],
        live_brokers=[],
    )


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ([BrokerUnavailable("away"), ErrorCode.NONE, ErrorCode.NONE], [1, 1, 2]),
        ([ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE, ErrorCode.NONE], [1, 1, 2]),
        ([ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.NONE], [1, 2]),
        ([ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE], [1, 2]),
    ],
)
def test_a_request_is_sent_until_it_is_taken_or_overtaken(
    script: list[ErrorCode | Exception], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_channels, "FIRST_PAUSE_S", 0.0)
    client: Any = ScriptedClient(*script)

    async def run() -> None:
        broker = BrokerImage(BrokerId(2), 1, None, {})
        loop = asyncio.get_running_loop()
        channel = BrokerChannel(broker, lambda lost: client, 1.0, loop, lambda *_: None, lambda *_: None)
        channel.send([request(1), request(2)])
        async with asyncio.timeout(5):
            while len(client.asked) < len(asked):
                await asyncio.sleep(0)
        channel.close()

    asyncio.run(run())
    assert client.asked == asked


def test_a_request_at_which_a_broker_always_fails_holds_nothing_up_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = controller_channels.ATTEMPTS
    test_a_request_is_sent_until_it_is_taken_or_overtaken(
        [*[ErrorCode.UNKNOWN_SERVER_ERROR] * attempts, ErrorCode.NONE], [1] * attempts + [2], monkeypatch
    )
    assert "broker 2 failed on UpdateMetadataRequest" in caplog.text


def test_what_may_pass_is_waited_for_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [ErrorCode.NOT_CONTROLLER] * (controller_channels.ATTEMPTS + 1)
    test_a_request_is_sent_until_it_is_taken_or_overtaken(
        [*refusals, ErrorCode.NONE, ErrorCode.NONE], [1] * (len(refusals) + 1) + [2], monkeypatch
    )


REFUSED = BrokerRefused("nobody listens")
AWAY = BrokerUnavailable("away")


@pytest.mark.parametrize(
    ("openings", "heard"),
    [
        ([None], []),
        ([REFUSED, None], []),
        ([REFUSED, REFUSED, None], [False, True]),
        ([REFUSED, REFUSED, REFUSED, AWAY, REFUSED, REFUSED, None], [False, True]),
        ([AWAY, AWAY, AWAY, None], []),
        ([REFUSED, AWAY, REFUSED, None], []),
    ],
)
def test_a_broken_connection_is_opened_again_and_two_refusals_say_that_nobody_is_there(
    openings: list[Exception | None], heard: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_channels, "FIRST_PAUSE_S", 0.0)
    client: Any = ScriptedClient(openings=list(openings))
    listening: list[bool] = []
    break_it: list[Callable[[], None]] = []

    async def run() -> None:
        def new_client(lost: Callable[[], None]) -> Any:
            break_it.append(lost)
            return client

        broker, loop = BrokerImage(BrokerId(2), 1, None, {}), asyncio.get_running_loop()
        channel = BrokerChannel(broker, new_client, 1.0, loop, lambda *_: None, lambda _, does: listening.append(does))
        break_it[0]()
        async with asyncio.timeout(5):
            while client.opened < len(openings):
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        channel.close()

    asyncio.run(run())
    assert listening == heard


def test_a_broker_that_hangs_up_on_every_connection_is_not_called_all_the_time() -> None:
    client: Any = ScriptedClient()
    break_it: list[Callable[[], None]] = []

    async def run() -> None:
        def new_client(lost: Callable[[], None]) -> Any:
            break_it.append(lost)
            return client

        broker, loop = BrokerImage(BrokerId(2), 1, None, {}), asyncio.get_running_loop()
        channel = BrokerChannel(broker, new_client, 1.0, loop, lambda *_: None, lambda *_: None)
        for _ in range(100):
            break_it[0]()
            await asyncio.sleep(0)
        channel.close()

    asyncio.run(run())
    assert client.opened == 1
