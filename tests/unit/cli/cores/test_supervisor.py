"""What a unit finds in its directories before it starts, and what does not end it."""

import asyncio
import errno
import io
import logging
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.support.probe import free_port

from ottla.cli.cores import plan, supervisor
from ottla.cli.terminal.exits import FAILED, OK


def serve(directory: Path, cores: int = 2, port: int | None = None) -> int:
    return supervisor.serve_cores(
        None,
        {"log.dirs": str(directory), "listeners": f"PLAINTEXT://127.0.0.1:{port or free_port()}"},
        cores,
        log_level="info",
        log_format="text",
        flags=(),
    )


def own(directory: Path, cluster_id: str = "4L6g3nShT-eMCtK--X86sw") -> None:
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=2\n")


@pytest.fixture(autouse=True)
def starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_: supervisor.Supervisor) -> int:
        return 0

    monkeypatch.setattr(supervisor.Supervisor, "run", run)


def test_the_data_of_a_broker_that_ran_alone_is_not_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own(tmp_path / "data")
    assert serve(tmp_path / "data") == FAILED
    assert f"{tmp_path}/data holds the data of a broker that ran alone" in caplog.text
    assert not (tmp_path / "data/controller").exists()


def test_no_new_cluster_takes_the_place_of_lost_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own(tmp_path / "core-1")
    assert serve(tmp_path) == FAILED
    assert "belongs to the cluster 4L6g3nShT-eMCtK--X86sw, whose topics only its controller knows" in caplog.text
    assert not (tmp_path / "controller").exists()


def test_a_broker_that_is_not_started_any_longer_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert serve(tmp_path) == 0
    own(tmp_path / "core-2")
    with caplog.at_level(logging.WARNING):
        assert serve(tmp_path) == 0
    assert f"{tmp_path}/core-2 has the data of a broker that is not started with --cores 2" in caplog.text


def test_an_address_of_the_unit_that_is_taken_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert serve(tmp_path, port=port) == FAILED
    assert f"listener PLAINTEXT cannot bind 127.0.0.1:{port}" in caplog.text


def test_a_log_on_a_full_disk_does_not_end_the_unit() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def copied() -> None:
        process = supervisor._Process("broker 1", {}, {}, "info", "text", (), Full())
        lines = asyncio.StreamReader()
        lines.feed_data(b"a line\nanother\n")
        lines.feed_eof()
        await process._copy(lines)

    asyncio.run(copied())


def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def kept() -> list[int]:
        unit = plan.plan({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/nowhere"}, 1, "box")
        made = supervisor.Supervisor(unit, log_level="info", log_format="text", flags=(), out=io.StringIO())
        process = made._brokers[-1]
        process.serves.set()
        tries: list[int] = []

        async def run() -> int:
            tries.append(1)
            if len(tries) == 2:
                process.stop_wanted.set()
                return 0
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        monkeypatch.setattr(process, "run", run)
        monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
        await made._keep(process)
        return tries

    assert asyncio.run(kept()) == [1, 1]
    assert "broker 2 cannot be started" in caplog.text


def test_a_controller_that_dies_while_the_unit_stops_is_not_started_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def kept() -> int:
        unit = plan.plan({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/nowhere"}, 1, "box")
        made = supervisor.Supervisor(unit, log_level="info", log_format="text", flags=(), out=io.StringIO())
        controller = made._controllers[0]
        controller.serves.set()
        tries = 0

        async def run() -> int:
            nonlocal tries
            tries += 1
            return FAILED

        monkeypatch.setattr(controller, "run", run)
        made._stop()
        keeping = asyncio.create_task(made._keep(controller))
        for _ in range(1000):
            await asyncio.sleep(0)
        controller.stop(0)
        await keeping
        return tries

    assert asyncio.run(kept()) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, OK), (signal.SIGKILL, FAILED)])
def test_a_stop_before_anything_has_begun_is_no_failure(number: int, code: int) -> None:
    async def kept() -> bool:
        unit = plan.plan({"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "/nowhere"}, 1, "box")
        made = supervisor.Supervisor(unit, log_level="info", log_format="text", flags=(), out=io.StringIO())
        process = made._brokers[0]
        keeping = asyncio.create_task(made._keep(process))
        while process._process is None:
            await asyncio.sleep(0.001)
        process.stop(number)
        await keeping
        return made._failed

    assert asyncio.run(kept()) is (code == FAILED)
