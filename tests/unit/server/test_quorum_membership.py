"""A broker's replicas follow the log of a quorum."""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cluster.image import empty_image
from ottla.server import cluster_member, quorum_membership
from ottla.server.quorum_membership import QuorumMembership


def test_a_change_that_cannot_be_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_membership, "LOOK_AGAIN_S", 0.0)
    taken: list[Any] = []

    class Member(QuorumMembership):
        def __init__(self) -> None:
            self.metadata: Any = SimpleNamespace(image=empty_image("cluster"))
            self._config: Any = SimpleNamespace(node_id=1, inter_broker_listener="PLAINTEXT")
            self.lifecycle: Any = SimpleNamespace(broker_epoch=7)
            self._assignments: Any = SimpleNamespace(lost=set())
            self._directories: Any = SimpleNamespace(online=[])
            self._fetchers: Any = SimpleNamespace(held=nullcontext)
            self._image_changed = asyncio.Event()
            self._has_followed = asyncio.Event()

        async def _take(self, changes: Any) -> None:
            taken.append(changes)
            if len(taken) == 1:
                raise RuntimeError("a defect, or a disk")

    async def scenario() -> None:
        member = Member()
        member._image_changed.set()
        following = asyncio.create_task(member._follow())
        async with asyncio.timeout(60):
            await asyncio.wait(
                [following, asyncio.create_task(member._has_followed.wait())], return_when="FIRST_COMPLETED"
            )
        assert not following.done(), following
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(scenario())
    assert taken[0] == taken[1], "all of it again"


@pytest.mark.parametrize("answered_s", [0.0, 0.1, 60.0])
def test_a_broker_waits_for_others_to_lead_no_longer_than_a_controller_answers(
    monkeypatch: pytest.MonkeyPatch, answered_s: float
) -> None:
    """Without one nobody can lead in its place, and its next start has to wait for its end."""
    for module in (quorum_membership, cluster_member):
        monkeypatch.setattr(module, "HAND_OVER_S", 0.2)

    class Lifecycle:
        broker_epoch = 7
        wants_shut_down = may_shut_down = False

        def hurry(self) -> None:
            pass

        async def until(self, is_so: Callable[[], bool]) -> None:
            began = time.monotonic()
            while not is_so():
                await asyncio.sleep(0.01 if time.monotonic() - began < answered_s else 60)

    class Member(QuorumMembership):
        def __init__(self) -> None:
            self._config: Any = SimpleNamespace(
                node_id=1,
                controlled_shutdown_enable=True,
                controlled_shutdown_max_retries=4,
                controlled_shutdown_retry_backoff_ms=250,
            )
            self.metadata: Any = SimpleNamespace(image=SimpleNamespace(brokers={1: None, 2: None}))
            self.lifecycle: Any = Lifecycle()
            self._following: Any = object()
            self._loop = asyncio.get_running_loop()

    async def scenario() -> float:
        began = time.monotonic()
        await Member().hand_over()
        return time.monotonic() - began

    took_s = asyncio.run(scenario())
    assert took_s >= min(answered_s + 0.2, 1.0)
    assert (took_s < 1.0) is (answered_s < 1.0)
