"""What the controller says to a broker is said until it is taken, or has been overtaken."""

import asyncio
from typing import Any

import pytest

from ottla.cluster import controller_channels
from ottla.cluster.controller_channels import BrokerChannel
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.peer.client import PeerUnavailable
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class ScriptedClient:
    """Answers with these, one after the other; `asked` are the controller epochs it was asked with."""

    def __init__(self, *script: ErrorCode | Exception) -> None:
        self._script = list(script)
        self.asked: list[int] = []

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
        ([PeerUnavailable("away"), ErrorCode.NONE, ErrorCode.NONE], [1, 1, 2]),
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
        channel = BrokerChannel(broker, client, 1.0, asyncio.get_running_loop(), lambda *_: None)
        channel.send([request(1), request(2)])
        async with asyncio.timeout(5):
            while len(client.asked) < len(asked):
                await asyncio.sleep(0)
        channel.close()

    asyncio.run(run())
    assert client.asked == asked
