"""Connectors' other end: Ottla's worker writes a topic into PostgreSQL, each record once."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from tests.support.connect_process import OttlaConnect, WorkerProcess
from tests.support.postgres import USER

from benches import sink_load
from benches.benchmarks.connect import environment
from benches.contestants import Contestant
from benches.generators import LoadFailedError, create_topic
from benches.model import Bench, Benchmark, Figure, Goal

_PARTITIONS: Final = 2
_UPSERTS: Final = Figure("upserts_per_s", "upserts committed", "upserts/s", "higher")
_COSTS: Final = (
    Figure("cpu_us_per_record", "processor time of the workers for a record", "us", "lower"),
    Figure("database_us_per_record", "of PostgreSQL", "us", "lower"),
    Figure("broker_us_per_record", "of the broker", "us", "lower"),
    Figure("rss_mb", "memory of the workers afterwards", "MB", "lower"),
)


@contextmanager
def _started(first: WorkerProcess, count: int, bench: Bench) -> Iterator[list[WorkerProcess]]:
    """A group of so many workers."""
    workers = [first]
    with ExitStack() as stack:
        for _ in range(count - 1):
            another = OttlaConnect(first.brokers, bench.data_root / f"worker-{time.monotonic_ns()}")
            stack.callback(another.kill)
            workers.append(another)
        for each in workers:
            each.start()
        yield workers


def _measuring(rows: sink_load.Rows, full: int, count: int = 1) -> Callable[[Contestant, Bench], dict[str, float]]:
    def measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
        records = bench.scaled(full, 50_000)
        with environment(contestant, bench) as (server, broker, worker):
            create_topic(broker.bootstrap, "orders", _PARTITIONS)
            bench.say(f"{contestant.title}: a topic is filled with {records} rows")
            sink_load.fill_topic(broker.bootstrap, "orders", rows(records, records // 2), _PARTITIONS)
            bench.say(f"{contestant.title}: they are written")
            config = {
                "connector.class": "relational-sink",
                "tasks.max": str(_PARTITIONS),
                "topics": "orders",
                "connection.url": f"postgresql+psycopg2://{USER}@127.0.0.1:{server.port}/postgres",
                "insert.mode": "upsert",
                "pk.mode": "record_key",
                "delete.enabled": "true",
                "auto.create": "true",
            }
            with _started(worker, count, bench) as workers:
                worker.put("orders", config)
                figures = sink_load.written(server, broker, workers, records)
                tasks = worker.request("GET", "/connectors/orders/status")["tasks"]
                if len({task["worker_id"] for task in tasks}) != count:
                    raise LoadFailedError(f"the tasks are not shared by {count} workers: {tasks}")
                return {**figures, "rss_mb": sum(each.rss_bytes() for each in workers) / 1e6}

    return measure


def _sink(name: str, title: str, rows: sink_load.Rows, full: int, *, goal: int, workers: int = 1) -> Benchmark:
    figures = (replace(_UPSERTS, goals={"ottla": Goal("value", goal)}), *_COSTS)
    measure = _measuring(rows, full, workers)
    return Benchmark(name, title, figures, measure, disk_gb=5, contestants=frozenset(("ottla",)))


_INTO: Final = f"Upserts from a topic of {_PARTITIONS} partitions into a table of PostgreSQL, exactly once"

CONNECT_SINK: Final = _sink(
    "connect-sink", f"{_INTO}: rows of seven columns", sink_load.plain_rows, 1_000_000, goal=50_000
)

CONNECT_SINK_WORKERS: Final = _sink(
    "connect-sink-workers",
    f"The same by {_PARTITIONS} workers, which share the tasks: one for each core",
    sink_load.plain_rows,
    1_000_000,
    goal=60_000,
    workers=_PARTITIONS,
)

CONNECT_SINK_CHANGES: Final = _sink(
    "connect-sink-changes", f"{_INTO}: Debezium's envelopes", sink_load.change_events, 500_000, goal=40_000
)
