"""A controller whose store fails for a while, or that is one no more."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from ottla.clock import SystemClock
from ottla.cluster import charge as charges
from ottla.cluster.charge import Charge
from ottla.cluster.commands import Command
from ottla.cluster.image import MetadataImage
from ottla.cluster.store import layout
from ottla.cluster.store.base import StoreConflict, StoreUnavailable
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.testing.memory_store import MemoryStore, MemoryTree


def decide_after(problems: list[OttlaError], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens when decisions fail with these problems, one after the other."""
    happened: list[str] = []

    async def main() -> None:
        charge = Charge(
            MemoryStore(MemoryTree()),
            BrokerConfig({}),
            SystemClock(),
            asyncio.get_running_loop(),
            cast(Any, None),
            1,
            lambda: happened.append("deposed"),
        )

        async def decide(plan: Callable[[MetadataImage], Sequence[Command]]) -> None:
            if problems:
                happened.append("failed")
                raise problems.pop(0)
            happened.append("decided")

        async def reassign(*args: object, **options: object) -> list[OttlaError | None]:
            return []

        monkeypatch.setattr(charge.service, "decide", decide)
        monkeypatch.setattr(charge.service, "reassign", reassign)
        await charge.reassign([])
        async with asyncio.timeout(20):
            while happened[-1] == "failed":
                await asyncio.sleep(0.001)
        await charge.end()

    monkeypatch.setattr(charges, "RETRY_S", 0.001)
    asyncio.run(main())
    return happened


def test_what_could_not_be_decided_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[OttlaError] = [StoreUnavailable("away"), StoreConflict("/brokers/topics/t", "is there already")]
    assert decide_after(problems, monkeypatch) == ["failed", "failed", "decided"]


def test_a_controller_of_the_past_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[OttlaError] = [StoreConflict(layout.CONTROLLER_EPOCH_PATH, "is not there in version 1")]
    assert decide_after(later, monkeypatch) == ["failed", "deposed"]
