"""A large streams group: its tasks are assigned within one turn of the event loop, so that must not take long."""

import gc
import heapq
import time
from typing import Final
from uuid import UUID

import pytest
from tests.support.state_machines import Driver

from ottla.config.group_settings import GroupSettings
from ottla.groups.config import GroupConfig
from ottla.groups.environment import GroupEnvironment
from ottla.groups.state_machine import GroupMachine
from ottla.groups.streams.events import StreamsHeartbeat
from ottla.groups.streams.records import StreamsTarget
from ottla.groups.streams.tasks import NOTHING
from ottla.groups.streams.topology import InternalTopicInfo, Subtopology, Topology
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import GroupId, MemberId, ProcessId, SubtopologyId, TopicId, TopicName

G: Final = GroupId("g")
TASKS: Final = 10_000
SUBTOPOLOGIES: Final = 10
MOST_TIMES: Final = 6
"""How many times longer than the smallest assignment (8 ms) a turn may last: 50 ms at most."""
TRIES: Final = 5
DELAY_MS: Final = 3_000


def large_group(members: int, processes: int) -> Driver:
    """A group that has yet to be assigned its tasks, each of which wants a standby."""
    names = [TopicName(f"{kind}{at}") for at in range(SUBTOPOLOGIES) for kind in ("source", "changelog")]
    topics = FixedTopics(
        [Topic(name, TopicId(UUID(int=1 + at)), ((),) * (TASKS // SUBTOPOLOGIES)) for at, name in enumerate(names)]
    )
    topology = Topology(
        0,
        tuple(
            Subtopology(
                SubtopologyId(str(at)),
                (TopicName(f"source{at}"),),
                state_changelog_topics=(InternalTopicInfo(TopicName(f"changelog{at}")),),
            )
            for at in range(SUBTOPOLOGIES)
        ),
    )
    settings = GroupSettings(streams_initial_rebalance_delay_ms=DELAY_MS, streams_num_standby_replicas=1)
    driver = Driver(GroupMachine(GroupConfig(), lambda: "uuid", GroupEnvironment(lambda: topics, lambda _: settings)))
    for at in range(members):
        member, process = MemberId(f"m{at}"), ProcessId(f"p{at % processes}")
        driver.send(StreamsHeartbeat(G, member, 0, 0, None, "c", "/h", 9_000, topology, NOTHING, process), at)
    return driver


def least_work_s() -> float:
    """The CPU time it takes to put each task twice into a heap, a set and a dict: processors differ, and one that is
    shared takes longer."""
    heap = [(0.0, at, [at]) for at in range(100)]
    placed: set[int] = set()
    owners: dict[int, list[int]] = {}
    begun = time.process_time()
    for at in range(2 * TASKS):
        load, _, members = heap[0]
        placed.add(at)
        owners[at] = members
        heapq.heapreplace(heap, (load + 1, 100 + at, members))
    return time.process_time() - begun


@pytest.fixture
def only_new_objects_are_collected() -> None:
    """As in the broker: what else the process that runs the tests has in memory does not count."""
    gc.collect()
    gc.freeze()


@pytest.mark.timed
@pytest.mark.usefixtures("only_new_objects_are_collected")
@pytest.mark.parametrize(("members", "processes"), [(2, 2), (100, 25), (100, 100)])
def test_ten_thousand_tasks_with_a_standby_each_are_assigned_in_a_short_turn(members: int, processes: int) -> None:
    ratios = []
    for _ in range(TRIES):
        driver = large_group(members, processes)
        known = len(driver.log)
        least_s = least_work_s()
        begun = time.process_time()
        driver.pass_time(DELAY_MS)
        for record in driver.log[known:]:
            driver.machine.records.encode(record)
        taken_s = time.process_time() - begun
        ratios.append(taken_s / least_s)
        print(f"{members} members: {taken_s * 1000:.0f} ms, {ratios[-1]:.1f} times {least_s * 1000:.0f} ms")
        targets = [record.tasks for record in driver.log[known:] if isinstance(record, StreamsTarget)]
        for kind in ("active", "standby"):
            assert sum(len(each) for sets in targets for each in getattr(sets, kind).values()) == TASKS
    assert min(ratios) < MOST_TIMES
