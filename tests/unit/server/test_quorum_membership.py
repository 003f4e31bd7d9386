"""A broker's replicas follow the log of a quorum."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cluster.image import empty_image
from ottla.server import quorum_membership
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
