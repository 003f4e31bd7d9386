"""The end of a broker with many logs."""

import asyncio
import time
from pathlib import Path

import pytest

from ottla.broker import Broker
from ottla.config.broker import BrokerConfig
from ottla.log.directory import LogDirectory

CLOSING_S = 0.6


def test_the_loop_goes_on_while_logs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller of the same process leads the quorum until then: three seconds without it, and others elect one."""
    unload = LogDirectory.unload

    def slowly(directory: LogDirectory) -> None:
        if directory._loaded:
            time.sleep(CLOSING_S)
        unload(directory)

    async def longest_gap(ended: asyncio.Event) -> float:
        longest, last = 0.0, time.monotonic()
        while not ended.is_set():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest

    async def story() -> float:
        ended = asyncio.Event()
        async with Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})):
            monkeypatch.setattr(LogDirectory, "unload", slowly)
            looking = asyncio.create_task(longest_gap(ended))
        ended.set()
        return await looking

    assert asyncio.run(story()) < CLOSING_S
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_logs_are_closed_before_a_cancelled_end_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unload = LogDirectory.unload

    def slowly(directory: LogDirectory) -> None:
        if directory._loaded:
            time.sleep(0.1)
        unload(directory)

    async def story() -> None:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.__aenter__()
        monkeypatch.setattr(LogDirectory, "unload", slowly)
        following = list(broker.metadata._subscribers)
        closing = asyncio.create_task(broker.replicas.close())
        await asyncio.sleep(0.05)
        gone = [each for each in following if each not in broker.metadata._subscribers]
        assert gone == [broker.replicas._follow], "the loop leaves the logs to the thread"
        closing.cancel()
        await asyncio.wait([closing])
        assert not broker.replicas.directories.directories[0].logs
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        await broker.__aexit__(None, None, None)

    asyncio.run(story())
