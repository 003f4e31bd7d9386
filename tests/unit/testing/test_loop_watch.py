"""The watch over the event loop: it finds what holds the loop up, and leaves a loaded machine alone."""

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.raw_client import ask

from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.server.handlers import describe_cluster
from ottla.testing import Broker, LoopBlocked

LIMIT_S = 0.15


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def ask_a_handler_that(does: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks a broker something that its loop does this for."""

    def handle(request: Any, context: Any) -> DescribeClusterResponse:
        does()
        return DescribeClusterResponse(cluster_id="c", brokers=[])

    monkeypatch.setattr(describe_cluster, "handle", handle)
    with Broker(loop_limit_seconds=LIMIT_S) as broker:
        ask(broker.bootstrap, DescribeClusterRequest(include_cluster_authorized_operations=False), 0)


def test_a_loop_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoopBlocked, match=r"computing(.|\n)*in compute"):
        ask_a_handler_that(lambda: compute(4 * LIMIT_S), monkeypatch)


def test_a_loop_that_waits_in_a_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoopBlocked, match=r"waiting in clock_nanosleep(.|\n)*time\.sleep"):
        ask_a_handler_that(lambda: time.sleep(1.0), monkeypatch)


def test_what_is_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_a_handler_that(lambda: compute(LIMIT_S / 4), monkeypatch)


def test_a_collector_that_happens_to_run_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect() -> None:
        until = time.thread_time() + 4 * LIMIT_S
        while time.thread_time() < until:
            gc.collect()

    before = list(gc.callbacks)  # a fixture of a whole worker may watch its loops, too
    ask_a_handler_that(collect, monkeypatch)
    assert gc.callbacks == before


def test_a_machine_with_too_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads want the interpreter all the time: signs of life come late, through no fault of the loop."""
    enough = threading.Event()

    def hog() -> None:
        while not enough.is_set():
            sum(range(200_000))

    hogs = [threading.Thread(target=hog) for _ in range(3)]
    for thread in hogs:
        thread.start()
    try:
        ask_a_handler_that(lambda: compute(LIMIT_S / 4), monkeypatch)
    finally:
        enough.set()
        for thread in hogs:
            thread.join()


def test_a_failing_test_fails_for_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute_and_fail() -> None:
        with Broker(loop_limit_seconds=LIMIT_S) as broker:
            assert broker._loop is not None
            broker._loop.call_soon_threadsafe(compute, 4 * LIMIT_S)
            time.sleep(8 * LIMIT_S)
            raise ValueError("the test's own reason")

    with pytest.raises(ValueError, match="the test's own reason") as caught:
        compute_and_fail()
    assert any("computing" in note for note in caught.value.__notes__)
