"""A connector's life as the console orders it, at any worker."""

import asyncio
import time
from collections.abc import Mapping

import pytest

from ottla.connect.rest.redaction import HIDDEN
from ottla.console.connectors import ConnectCluster, WorkerProblem


def lived_by_the_console(url: str, name: str, config: Mapping[str, str], wrong: Mapping[str, str]) -> None:
    """Make, watch, change, order about and delete a connector. `wrong`: a setting of it with a value that is none."""
    asyncio.run(_lived(ConnectCluster(0, url), name, {**config, "name": name}, wrong))


async def _lived(worker: ConnectCluster, name: str, config: dict[str, str], wrong: Mapping[str, str]) -> None:
    assert (await worker.validated(config)).errors == 0
    infos = await worker.validated({**config, **wrong})
    assert [each.name for each in infos.wrong] == list(wrong)
    assert await worker.plugins()
    await worker.set_config(name, config, only_new=True)
    with pytest.raises(WorkerProblem, match="already exists"):
        await worker.set_config(name, config, only_new=True)
    await _settles(worker, name, ["RUNNING", "RUNNING"])
    await worker.set_config(name, {**config, "producer.override.ssl.key.password": "hunter2"})
    await _settles(worker, name, ["RUNNING", "RUNNING"])
    worker.shared.forget()
    found = await worker.described(name)
    assert found.config["producer.override.ssl.key.password"] == HIDDEN
    assert found.config["tasks.max"] == config["tasks.max"]
    assert found.connector.kind == "source"
    assert (found.offsets, found.topics) != (None, None)
    with pytest.raises(WorkerProblem) as refused:
        await worker.set_offsets(name, None)
    assert refused.value.status == 400
    await worker.restart(name)
    await worker.restart(name, 0)
    for order, states in (("pause", ["PAUSED", "PAUSED"]), ("resume", ["RUNNING", "RUNNING"]), ("stop", ["STOPPED"])):
        await worker.turn(name, order)
        await _settles(worker, name, states)
    await worker.set_offsets(name, None)
    await worker.delete(name)
    await _settles(worker, name, [])


async def _settles(worker: ConnectCluster, name: str, states: list[str]) -> None:
    until = time.monotonic() + 60
    while (found := await _states(worker, name)) != states:
        assert time.monotonic() < until, found
        await asyncio.sleep(0.05)


async def _states(worker: ConnectCluster, name: str) -> list[str]:
    worker.shared.forget()
    for each in (await worker.listed()).connectors:
        if each.name == name:
            return [each.state, *(task.state for task in each.tasks)]
    return []
