"""The console of a broker with 10,000 topics and 5,000 groups, and with fifty people who watch it.

Goals: the first page within 0.3 s; memory of 90 MB idle and 200 MB with 50 viewers; a broker that pays for what they
read alone.
"""

import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ottla_process import OttlaProcess

TOPICS: Final = 10_000
GROUPS: Final = 5_000
VIEWERS: Final = 50
WATCHED_S: Final = 20.0
LONGEST_S: Final = 0.3
"""Processor time of the console for a page; wall time on a busy machine proves nothing."""
ADDRESSES: Final = ("/", "/topics", "/groups", "/cluster", "/transactions", "/topics/topic-00001", "/groups/group-0001")
IDLE_BYTES: Final = 90e6
WATCHED_BYTES: Final = 200e6


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for start in range(0, TOPICS, 500):
        topics = [NewTopic(f"topic-{number:05}", 1, 1) for number in range(start, start + 500)]
        for each in admin.create_topics(topics, request_timeout=60).values():
            each.result(60)
    for start in range(0, GROUPS, 250):
        asked: list[Future[ConsumerGroupTopicPartitions]] = []
        for number in range(start, start + 250):
            at = [TopicPartition(f"topic-{number:05}", 0, 0)]
            wanted = [ConsumerGroupTopicPartitions(f"group-{number:04}", at)]
            asked += admin.alter_consumer_group_offsets(wanted, request_timeout=60).values()
        for each in asked:
            each.result(60)


def _watch(url: str, ready: threading.Semaphore, end: threading.Event) -> None:
    request = urllib.request.Request(url, headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=60) as events:
        events.readline()
        ready.release()
        while not end.is_set():
            events.readline()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_topics_and_fifty_viewers() -> None:
    ottla = Path(sys.executable).with_name("ottla")
    with OttlaProcess() as broker:
        _fill(broker.bootstrap)
        command = [str(ottla), "console", "--port", "0", "--bootstrap", broker.bootstrap]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            url = process.stderr.readline().split()[4].rstrip("/")
            console, served = psutil.Process(process.pid), psutil.Process(broker.pid)
            idle = console.memory_info().rss
            print(f"\nidle {idle / 1e6:.0f} MB")
            cold: dict[str, float] = {}
            warm: dict[str, float] = {}
            for address in ADDRESSES:
                for found in (cold, warm):
                    time.sleep(2.5)  # answers are shared for two seconds
                    began, before = time.monotonic(), console.cpu_times()
                    with urllib.request.urlopen(url + address, timeout=60) as answer:
                        answer.read()
                    found[address] = time.monotonic() - began
                    took = console.cpu_times()
                    spent_s = took.user + took.system - before.user - before.system
                    print(f"{address}: {found[address]:.3f} s, {spent_s:.2f} s of CPU")
                    found[address] = spent_s
            print(f"after the pages {console.memory_info().rss / 1e6:.0f} MB")
            rest_s = _cpu(served, WATCHED_S)
            ready, end = threading.Semaphore(0), threading.Event()
            viewers = [
                threading.Thread(
                    target=_watch, args=(url + ADDRESSES[number % len(ADDRESSES)], ready, end), daemon=True
                )
                for number in range(VIEWERS)
            ]
            for each in viewers:
                each.start()
            for _ in viewers:
                assert ready.acquire(timeout=60)
            own = console.cpu_times()
            watched_s = _cpu(served, WATCHED_S)
            spent = console.cpu_times()
            watched = console.memory_info().rss
            print(f"{VIEWERS} viewers {watched / 1e6:.0f} MB")
            print(f"broker: {rest_s:.2f} s of CPU in {WATCHED_S:.0f} s without viewers, {watched_s:.2f} s with them")
            print(f"console: {spent.user + spent.system - own.user - own.system:.2f} s")
            end.set()
            process.terminate()
    assert idle < IDLE_BYTES
    assert watched < WATCHED_BYTES
    assert max(min(cold[address], warm[address]) for address in ADDRESSES) < LONGEST_S


def _cpu(process: psutil.Process, over_s: float) -> float:
    """The processor time that a process takes in the next seconds."""
    before = process.cpu_times()
    time.sleep(over_s)
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system
