"""Delegation tokens of two brokers that share a store."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ottla.config.broker import BrokerConfig
from ottla.metadata.delegation_tokens import DelegationTokens
from ottla.metadata.store.embedded import EmbeddedStore
from ottla.metadata.store.token_layout import TOKENS_PATH
from ottla.security.delegation_tokens import Lifetimes, new_token
from ottla.testing.manual_clock import ManualClock

TIMES = Lifetimes(longest_ms=7000, renewal_ms=1000)


def test_what_one_broker_changes_holds_at_the_other_and_ended_tokens_go(tmp_path: Path) -> None:
    async def follow() -> None:
        store, clock = EmbeddedStore(tmp_path / "metadata.db"), ManualClock()
        await store.open()
        config = BrokerConfig(
            {"delegation.token.secret.key": "secret", "delegation.token.expiry.check.interval.ms": "10"}
        )
        one, other = (DelegationTokens(store, config, clock, shared=True) for _ in range(2))
        await one.open()
        await other.open()
        token = new_token("id", "User:alice", "User:alice", (), -1, clock.now_ms(), TIMES)
        await one.put(token)
        await until(lambda: other.usable("id") is not None)
        assert other.find(one.secret(token)) == token
        await other.prepare("id", "SCRAM-SHA-256")
        assert other.credential("id", "SCRAM-SHA-256") is not None
        clock.advance(seconds=2)
        assert other.usable("id") is None
        assert other.credential("id", "SCRAM-SHA-256") is None
        await until(lambda: not one.all() and not other.all())
        assert list(await store.read(TOKENS_PATH)) in ([], [TOKENS_PATH])
        await one.close()
        await other.close()
        await store.close()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.01)

    asyncio.run(follow())
