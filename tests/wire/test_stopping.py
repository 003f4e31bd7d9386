"""How `ottla serve` ends: by signals at any time, and by itself when its disk is gone."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

from ottla import broker_process
from ottla.broker import Broker
from ottla.log.directory import CLEAN_SHUTDOWN, LogDirectory

WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def hangups_end_processes() -> Iterator[None]:
    """Also where the tests themselves run under nohup, whose children inherit that SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def end_of(process: OttlaProcess) -> int:
    """The exit code of one that ends by itself."""
    ended = process._process
    assert ended is not None
    code = ended.wait(WITHIN_S)
    process._forget()
    return code


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_each_signal_stops_a_broker_cleanly(number: signal.Signals) -> None:
    with OttlaProcess() as process:
        os.kill(process.pid, number)
        assert end_of(process) == 0
        assert (process.log_dir / CLEAN_SHUTDOWN).exists()


def test_nohup_is_honoured(tmp_path: Path) -> None:
    process = OttlaProcess(tmp_path, prefix=["nohup"])
    with process:
        os.kill(process.pid, signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process._process.wait(0.5)  # type: ignore[union-attr]
        assert process.answers()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_broker_that_waits_for_zookeeper_stops_at_once(number: signal.Signals, tmp_path: Path) -> None:
    away = {"zookeeper.connect": f"127.0.0.1:{free_port()}", "zookeeper.connection.timeout.ms": "120000"}
    process = OttlaProcess(tmp_path, properties=away)
    process.start(wait=False)
    eventually(lambda: (process.log_dir / ".lock").exists())
    os.kill(process.pid, number)
    assert end_of(process) == 0
    assert "stopped before it was ready" in process.log_text()


def test_a_broker_that_recovers_its_logs_stops_after_the_partition_it_is_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LogDirectory.load
    loading: list[LogDirectory] = []

    def slowly(directory: LogDirectory, *more: Any) -> Any:
        loading.append(directory)
        while not directory._is_abandoned:
            time.sleep(0.001)
        return load(directory, *more)

    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    (tmp_path / "t-0").mkdir()
    (tmp_path / CLEAN_SHUTDOWN).touch()

    async def main() -> bool:
        stopping = asyncio.Event()
        starting = asyncio.create_task(broker_process._has_started(Broker.configured(None, settings), stopping))
        while not loading:
            await asyncio.sleep(0.001)
        stopping.set()
        return await asyncio.wait_for(starting, WITHIN_S)

    with monkeypatch.context() as slow:
        slow.setattr(LogDirectory, "load", slowly)
        assert not asyncio.run(main())
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()  # not everything was loaded
    assert list((tmp_path / "t-0").iterdir()) == []

    async def again() -> None:
        async with Broker.configured(None, settings):
            pass

    asyncio.run(again())
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_broker_whose_only_directory_fails_ends_with_an_error() -> None:
    """A file in place of the directory: nothing can be created there any longer."""
    with OttlaProcess() as process:
        producer = Producer({"bootstrap.servers": process.bootstrap, "message.timeout.ms": 5000, "log_level": 0})
        producer.produce("t", b"v" * 500)
        assert producer.flush(WITHIN_S) == 0
        process.log_dir.rename(process.log_dir.with_name("gone"))
        process.log_dir.touch()
        producer.produce("u", b"v" * 500)
        assert end_of(process) == 1
        said = process.log_text()
        assert f"no log directory is left: {process.log_dir} has failed as the last one (" in said
        assert "Traceback" not in said
        producer.purge()
        producer.flush(WITHIN_S)
