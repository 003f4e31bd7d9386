"""Requests about groups whose coordinator answers after the timeout: librdkafka must not end the process."""

import multiprocessing
import time

from ottla.connect.runtime import membership
from tests.support.ottla_process import OttlaProcess

_OUTAGES = 2
_ASKED_S = 2.5
_TIMING = {"session": 6000, "heartbeat": 500, "rebalance": 6000}


def ask_amid_outages() -> None:
    """Ask for the workers of a group, with outages between."""
    membership._ANSWER_S = 0.5  # type: ignore[misc] # as if the outages were longer
    membership._ASK_EVERY_S = 0.1  # type: ignore[misc]
    with OttlaProcess() as broker:
        client = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 200}
        group = membership.Group("worker:1", "workers", "configs", client, _TIMING, lambda: None)
        for _ in range(_OUTAGES):
            broker.kill()
            until = time.monotonic() + _ASKED_S
            while time.monotonic() < until:
                group.members()
                time.sleep(0.1)
            broker.start()
            until = time.monotonic() + 1
            while time.monotonic() < until:
                group.members()
                time.sleep(0.1)


def test_a_worker_outlives_a_coordinator_that_answers_too_late() -> None:
    process = multiprocessing.get_context("spawn").Process(target=ask_amid_outages)
    process.start()
    process.join(90)
    assert process.exitcode == 0, "-6: librdkafka has aborted it"
