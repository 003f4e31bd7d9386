"""Three brokers, replication 3: start, throughput and latency, failover of leaders and of the controller.

All brokers are controllers as well, and share one core, so that both kinds have the same. Sessions are of the same
length.
"""

import statistics
import threading
import time
from itertools import count
from typing import Final

from confluent_kafka import ElectionType, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata
from tests.support.eventually import eventually

from benches.benchmarks.latency import RATE
from benches.clusters import Cluster
from benches.contestants import Contestant
from benches.generators import LoadFailedError, create_topic, java_produce, librdkafka
from benches.model import Bench, Benchmark, Figure, Goal

REPLICAS: Final = 3
PARTITIONS: Final = 6
SIZE: Final = 1000
SHORT_SESSION_MS: Final = 2000
"""Where it is measured how long others take to take over: most of it is waiting for the end of the session."""
CONTROLLED_PARTITIONS: Final = 2000
TAKEOVER_S: Final = 120.0
HANDOVERS: Final = 5
CONTESTANTS: Final = frozenset(("ottla", "kafka"))


def _start(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.cluster(contestant, started=False) as cluster:
        bench.say(f"{contestant.title}: three brokers start")
        return {"first_ack_s": cluster.seconds_to_first_ack("first")}


def _load(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.cluster(contestant) as cluster:
        where = cluster.bootstrap
        records = bench.scaled(400_000, 50_000)
        bench.say(f"{contestant.title}: warming up")
        for topic in ("warm-up", "java", "rdkafka", "latency"):
            create_topic(where, topic, PARTITIONS, REPLICAS)
        librdkafka("produce", where, "warm-up", records=records // 4, size=SIZE)
        bench.say(f"{contestant.title}: {RATE} records a second, three replicas")
        warm_up, seconds = (3, 8) if bench.quick else (8, 20)
        times = librdkafka("latency", where, "latency", rate=RATE, warm_up=warm_up, seconds=seconds, size=SIZE)
        figures = {"p50_ms": times["p50"], "p99_ms": times["p99"]}
        before = cluster.cpu_seconds()
        bench.say(f"{contestant.title}: librdkafka, three replicas")
        figures["rdkafka_per_s"] = librdkafka("produce", where, "rdkafka", records=records, size=SIZE)["records_per_s"]
        bench.say(f"{contestant.title}: ProducerPerformance, three replicas")
        figures["java_per_s"] = java_produce(where, "java", records, SIZE)
        figures["cpu_s_per_gb"] = (cluster.cpu_seconds() - before) / (2 * records * SIZE / 1e9)
        figures["rss_mb"] = cluster.rss_bytes() / 1e6
        return figures


class Heartbeat:
    """A producer that writes to one partition every few milliseconds, and knows when each record was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "message.timeout.ms": int(TAKEOVER_S * 1000),
                "log_level": 0,
            }
        )
        self._acknowledged: list[tuple[float, float]] = []
        """When each record was produced, and when acknowledged."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        for number in count():
            if self._stopping.is_set():
                return
            at = time.perf_counter()

            def delivered(error: KafkaError | None, _: Message, at: float = at) -> None:
                if error is None:
                    self._acknowledged.append((at, time.perf_counter()))

            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=delivered)
            self._producer.poll(0.005)

    def first_after(self, then: float) -> float:
        """When the first record that was produced after `then` was acknowledged. Raises LoadFailedError."""
        deadline = time.perf_counter() + TAKEOVER_S
        while time.perf_counter() < deadline:
            for produced_at, acknowledged_at in list(self._acknowledged):
                if produced_at > then:
                    return acknowledged_at
            time.sleep(0.005)
        raise LoadFailedError(f"nothing was acknowledged within {TAKEOVER_S:.0f} s of the kill")


def _failover(contestant: Contestant, bench: Bench) -> dict[str, float]:
    """Kill who leads a partition, and is not the controller."""
    with bench.cluster(contestant, session_ms=SHORT_SESSION_MS) as cluster:
        create_topic(cluster.bootstrap, "t", 1, REPLICAS)
        admin = _admin(cluster)
        pauses: list[float] = []
        with Heartbeat(cluster.bootstrap, "t") as heartbeat:
            for number in range(bench.scaled(3, 1)):
                bench.say(f"{contestant.title}: leader killed, {number + 1}")
                heartbeat.first_after(time.perf_counter())
                leader = _leader_without_other_duties(cluster, admin)
                time.sleep(1)
                at = time.perf_counter()
                cluster.brokers[leader].kill()
                pauses.append(heartbeat.first_after(at) - at)
                cluster.brokers[leader].start()
                eventually(lambda: len(_topic(admin, "t").partitions[0].isrs) == REPLICAS, timeout_s=TAKEOVER_S)
        return {"failover_s": statistics.median(pauses)}


def _leader_without_other_duties(cluster: Cluster, admin: AdminClient) -> int:
    """The leader of `t`; while that is the controller, it is restarted, which hands over both.

    Raises LoadFailedError if one broker has both duties after each of some restarts.
    """
    for _ in range(HANDOVERS):
        controller = cluster.controller()
        leader = int(_topic(admin, "t").partitions[0].leader)
        if leader != controller:
            return leader
        cluster.brokers[controller].restart()
        eventually(lambda: len(_topic(admin, "t").partitions[0].isrs) == REPLICAS, timeout_s=TAKEOVER_S)
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(60)
    raise LoadFailedError(f"the leader of t-0 was the controller, too, after each of {HANDOVERS} restarts")


def _controller(contestant: Contestant, bench: Bench) -> dict[str, float]:
    """Kill the controller, which leads a third of the partitions, too."""
    partitions = bench.scaled(CONTROLLED_PARTITIONS, 200)
    with bench.cluster(contestant, session_ms=SHORT_SESSION_MS) as cluster:
        bench.say(f"{contestant.title}: {partitions} partitions are made")
        began = time.perf_counter()
        create_topic(cluster.bootstrap, "t", partitions, REPLICAS)
        created_s = time.perf_counter() - began
        admin = _admin(cluster)
        eventually(lambda: all(len(part.isrs) == REPLICAS for part in _topic(admin, "t").partitions.values()))
        time.sleep(2)
        bench.say(f"{contestant.title}: the controller of {partitions} partitions is killed")
        dead = cluster.controller()
        alive = ",".join(broker.bootstrap for number, broker in cluster.brokers.items() if number != dead)
        observer = AdminClient({"bootstrap.servers": alive, "log_level": 0})
        observer.list_topics(timeout=30)
        at = time.perf_counter()
        cluster.brokers[dead].kill()
        gone_at = 0.0
        while True:
            known = _metadata(observer)
            now = time.perf_counter()
            if known is not None:
                if not gone_at and dead not in known.brokers:
                    gone_at = now
                if all(part.leader not in (dead, -1) for part in known.topics["t"].partitions.values()):
                    break
            if now - at > TAKEOVER_S:
                raise LoadFailedError(f"not all partitions have a leader {TAKEOVER_S:.0f} s after the kill")
            time.sleep(0.01)
        return {
            "created_s": created_s,
            "takeover_s": now - at,
            "session_s": (gone_at or now) - at,
            "rss_mb": cluster.rss_bytes() / 1e6,
        }


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})


def _topic(admin: AdminClient, topic: str) -> TopicMetadata:
    found: TopicMetadata = admin.list_topics(topic, timeout=30).topics[topic]
    return found


def _metadata(admin: AdminClient) -> ClusterMetadata | None:
    try:
        return admin.list_topics(timeout=5)
    except KafkaException:  # the answer of the one that was killed
        return None


CLUSTER_START: Final = Benchmark(
    "cluster-start",
    "Three brokers start on empty directories",
    (
        Figure(
            "first_ack_s",
            "start to first record on three replicas",
            "s",
            "lower",
            {"ottla": Goal("value", 1)},
        ),
    ),
    _start,
    disk_gb=0.5,
    contestants=CONTESTANTS,
)

CLUSTER_LOAD: Final = Benchmark(
    "cluster-load",
    "Three replicas, acks=all, 1 KB, 6 partitions",
    (
        Figure("java_per_s", "Java produce", "records/s", "higher", {"ottla": Goal("ratio", 1.5)}),
        Figure("rdkafka_per_s", "librdkafka produce", "records/s", "higher", {"ottla": Goal("ratio", 1.5)}),
        Figure("cpu_s_per_gb", "CPU of the cluster per GB", "s", "lower", {"ottla": Goal("ratio", 0.3)}),
        Figure("p50_ms", f"produce to consume at {RATE}/s, p50", "ms", "lower"),
        Figure("p99_ms", f"produce to consume at {RATE}/s, p99", "ms", "lower", {"ottla": Goal("ratio", 0.5)}),
        Figure("rss_mb", "memory of three brokers after the load", "MB", "lower"),
    ),
    _load,
    disk_gb=4,
    contestants=CONTESTANTS,
)

CLUSTER_FAILOVER: Final = Benchmark(
    "cluster-failover",
    f"SIGKILL of a leader, sessions of {SHORT_SESSION_MS / 1000:g} s",
    (Figure("failover_s", "kill to the first acknowledged write", "s", "lower", {"ottla": Goal("ratio", 0.5)}),),
    _failover,
    disk_gb=0.5,
    contestants=CONTESTANTS,
)

CLUSTER_CONTROLLER: Final = Benchmark(
    "cluster-controller",
    f"SIGKILL of the controller of {CONTROLLED_PARTITIONS:,} partitions, sessions of {SHORT_SESSION_MS / 1000:g} s",
    (
        Figure("takeover_s", "kill to leaders everywhere", "s", "lower", {"ottla": Goal("value", 3)}),
        Figure("session_s", "of that, until the broker is known to be gone", "s", "lower"),
        Figure("created_s", "creating the partitions", "s", "lower"),
        Figure("rss_mb", "memory of the two that are left", "MB", "lower"),
    ),
    _controller,
    disk_gb=1,
    contestants=CONTESTANTS,
)
