"""Three brokers that are their own controllers: idle with many partitions, without the quorum's leader, and with a
metadata log of ten thousand partitions.
"""

import statistics
import time
from itertools import cycle
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask

from benches.benchmarks.cluster import CONTESTANTS, REPLICAS, SHORT_SESSION_MS
from benches.clusters import Cluster
from benches.contestants import Contestant
from benches.generators import LoadFailedError, create_topic
from benches.model import Bench, Benchmark, Figure, Goal
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

IDLE_PARTITIONS: Final = 1000
MANY_PARTITIONS: Final = 10_000
MANY_TOPICS: Final = 10
WITHIN_S: Final = 300.0


def _idle(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.cluster(contestant) as cluster:
        bench.say(f"{contestant.title}: three brokers idle")
        time.sleep(bench.scaled(10, 3))
        rss_mb = cluster.rss_bytes() / 1e6
        partitions = bench.scaled(IDLE_PARTITIONS, 100)
        create_topic(cluster.bootstrap, "t", partitions, REPLICAS)
        _wait_for_replicas(cluster, partitions)
        bench.say(f"{contestant.title}: {partitions} partitions idle")
        time.sleep(bench.scaled(20, 3))
        before, began = cluster.cpu_seconds(), time.perf_counter()
        time.sleep(bench.scaled(60, 5))
        share = (cluster.cpu_seconds() - before) / (time.perf_counter() - began)
        return {"idle_rss_mb": rss_mb, "idle_cpu_share": 100 * share, "rss_mb": cluster.rss_bytes() / 1e6}


def _leader(contestant: Contestant, bench: Bench) -> dict[str, float]:
    """Kill the leader of the quorum."""
    pauses: list[float] = []
    with bench.cluster(contestant, session_ms=SHORT_SESSION_MS) as cluster:
        for number in range(bench.scaled(5, 1)):
            create_topic(cluster.bootstrap, f"before-{number}", 1, REPLICAS)
            time.sleep(1)
            dead = cluster.controller()
            bench.say(f"{contestant.title}: the quorum's leader killed, {number + 1}")
            at = time.perf_counter()
            cluster.brokers[dead].kill()
            _create_somehow(cluster, f"after-{number}", dead)
            pauses.append(time.perf_counter() - at)
            cluster.brokers[dead].start()
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            eventually(lambda admin=admin: len(admin.list_topics(timeout=10).brokers) == REPLICAS, timeout_s=WITHIN_S)
    return {"topic_s": statistics.median(pauses)}


def _create_somehow(cluster: Cluster, topic: str, dead: int) -> None:
    """Ask the brokers that are left in turn, until one has had the topic created."""
    left = cycle(broker.bootstrap for number, broker in cluster.brokers.items() if number != dead)
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    deadline = time.perf_counter() + WITHIN_S
    while time.perf_counter() < deadline:
        try:
            answer = ask(next(left), CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
        except (ClosedError, TimeoutError):
            continue
        if answer.topics and answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        time.sleep(0.01)
    raise LoadFailedError(f"no topic can be created {WITHIN_S:.0f} s after the kill")


def _many(contestant: Contestant, bench: Bench) -> dict[str, float]:
    """Create many partitions, and restart the leader of the quorum."""
    each = bench.scaled(MANY_PARTITIONS, 1000) // MANY_TOPICS
    with bench.cluster(contestant) as cluster:
        bench.say(f"{contestant.title}: {MANY_TOPICS} topics of {each} partitions are created")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = [NewTopic(f"t{number}", each, REPLICAS) for number in range(MANY_TOPICS)]
        began = time.perf_counter()
        # One request each: Kafka's controllers refuse one that makes more than 10,000 records of metadata.
        limits = {"operation_timeout": WITHIN_S, "request_timeout": WITHIN_S}
        for created in [made for topic in topics for made in admin.create_topics([topic], **limits).values()]:
            created.result(WITHIN_S)
        _wait_for_replicas(cluster, MANY_TOPICS * each)
        created_s = time.perf_counter() - began
        time.sleep(bench.scaled(10, 3))
        number = cluster.controller()
        restarted = cluster.brokers[number]
        bench.say(f"{contestant.title}: the quorum's leader is started again")
        restarted.stop(timeout_s=WITHIN_S)
        began = time.perf_counter()
        restarted.start()
        own = AdminClient({"bootstrap.servers": restarted.bootstrap, "log_level": 0})
        eventually(
            lambda: number in (known := own.list_topics(timeout=30)).brokers and known.topics, timeout_s=WITHIN_S
        )
        restarted_s = time.perf_counter() - began
        return {"created_s": created_s, "restarted_s": restarted_s, "rss_mb": restarted.rss_bytes() / 1e6}


def _logs_of(bootstrap: str) -> int:
    try:
        answer = ask(bootstrap, DescribeLogDirsRequest(topics=None), 4)
    except TimeoutError:  # it is busy with making them
        return 0
    return sum(len(topic.partitions) for found in answer.results for topic in found.topics)


def _wait_for_replicas(cluster: Cluster, count: int) -> None:
    """Wait until each broker has as many logs: metadata names replicas that are still to be made."""

    def all_have() -> bool:
        return all(_logs_of(broker.bootstrap) >= count for broker in cluster.brokers.values())

    eventually(all_have, timeout_s=WITHIN_S, interval_s=0.5)  # an answer takes a broker long


CLUSTER_IDLE: Final = Benchmark(
    "cluster-idle",
    f"Three idle brokers, and with {IDLE_PARTITIONS:,} partitions on each",
    (
        Figure("idle_rss_mb", "memory without partitions", "MB", "lower", {"ottla": Goal("value", 130)}),
        Figure("idle_cpu_share", "CPU with partitions", "% of a core", "lower", {"ottla": Goal("value", 3)}),
        Figure("rss_mb", "memory with partitions", "MB", "lower"),
    ),
    _idle,
    disk_gb=1,
    contestants=CONTESTANTS,
)

CLUSTER_LEADER: Final = Benchmark(
    "cluster-leader",
    f"SIGKILL of the quorum's leader, sessions of {SHORT_SESSION_MS / 1000:g} s",
    (Figure("topic_s", "kill to the first topic created", "s", "lower", {"ottla": Goal("ratio", 0.7)}),),
    _leader,
    disk_gb=0.5,
    contestants=CONTESTANTS,
)

CLUSTER_MANY: Final = Benchmark(
    "cluster-many",
    f"{MANY_PARTITIONS:,} partitions in {MANY_TOPICS} topics, three replicas each",
    (
        Figure("created_s", "creating them, until all replicas are there", "s", "lower", {"ottla": Goal("value", 15)}),
        Figure("restarted_s", "the quorum's leader starts again and serves", "s", "lower", {"ottla": Goal("value", 2)}),
        Figure("rss_mb", "its memory", "MB", "lower", {"ottla": Goal("value", 150)}),
    ),
    _many,
    disk_gb=3,
    max_rounds=2,
    contestants=CONTESTANTS,
)
