"""What brokers know of what they were told, and did not ask for."""

import asyncio
from typing import Any, cast

import pytest

from ottla.client.errors import BrokerUnavailable
from ottla.ids import TopicName
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.schema import Message
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually


def test_a_broker_knows_the_settings_of_topics_that_it_does_not_hold() -> None:
    with ClusterInProcess() as cluster:
        cluster.create("t", [[1, 2]], min_insync_replicas="1")
        topics = [broker.metadata.log_config for broker in cluster.brokers.values()]
        eventually(lambda: all(config(TopicName("t")).min_insync_replicas == 1 for config in topics))


def test_a_broker_that_finds_itself_registered_goes_on() -> None:
    """The answer to a transaction may be lost, and the transaction not."""
    with ClusterInProcess(1) as cluster:
        metadata = cluster.brokers[1].metadata
        assert isinstance(metadata, ClusterMetadata)
        epoch, metadata.broker_epoch = metadata.broker_epoch, -1
        cluster.run(metadata.register_again())
        assert metadata.broker_epoch == epoch


class Silent:
    """In the place of what asks brokers: broker 1 never answers, and the others at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    async def ask(self, broker_id: int, request: Message, version: int, *, timeout_s: float) -> str:
        self.asked.append((broker_id, timeout_s))
        if broker_id == 1:
            await asyncio.sleep(timeout_s)
            raise BrokerUnavailable("broker 1 did not answer")
        return f"answer of {broker_id}"


def test_a_controller_that_does_not_answer_is_waited_for_no_longer_than_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ClusterInProcess() as cluster:
        metadata = cluster.brokers[3].metadata
        assert isinstance(metadata, ClusterMetadata)
        membership = cast(Any, metadata.create_at_controller).__self__
        silent = Silent()
        monkeypatch.setattr(membership, "ask", silent.ask)
        assert cluster.controller == 1
        asking = membership.ask_controller(ControlledShutdownRequest(broker_id=3), 3, timeout_s=0.3)
        with pytest.raises(BrokerUnavailable, match="no controller answers: broker 1 did not answer"):
            cluster.run(asking)
        assert silent.asked[0][1] == pytest.approx(0.3, abs=0.05)
        asking = membership.ask_controller(ControlledShutdownRequest(broker_id=3), 3)  # for half a minute
        waiting = asyncio.run_coroutine_threadsafe(asking, cluster.loop)
        eventually(lambda: silent.asked[-1][1] > 20)
        cluster.lose_session(1)
        assert waiting.result(10) in ("answer of 2", "answer of 3")
        monkeypatch.undo()
