"""A view's questions to brokers that are silent."""

import asyncio

import pytest

from ottla.admin import AsyncAdmin
from ottla.console import cluster
from ottla.console.cluster import ClusterView


def test_a_question_waits_for_those_before_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "TIMEOUT_S", 0.05)

    async def ask(admin: AsyncAdmin) -> str:
        return "answer"

    async def main() -> None:
        view = ClusterView("127.0.0.1:1", {})
        async with view.admin():
            with pytest.raises(TimeoutError):
                await view.quick(ask)
        assert await view.quick(ask) == "answer"
        view.close()

    asyncio.run(main())
