"""Connectors: Ottla's worker beside Kafka Connect with Debezium's connector, on the same database, broker and load.

Which worker it is goes by the contestant; the broker is Ottla's for both, so that the worker alone makes the
difference, and does not sync before it answers, as Kafka's does not. PostgreSQL, broker, worker and load share all
cores of the machine.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.connect_process import GenuineConnect, OttlaConnect, WorkerProcess
from tests.support.ottla_process import OttlaProcess
from tests.support.postgres import Postgres

from benches.connect_load import RECORDS_PER_TEN, TOPIC, Shop, Steady, percentile, reading, warm_up
from benches.contestants import BASELINE, CONTESTANTS, Contestant
from benches.generators import LoadFailedError, create_topic
from benches.model import Bench, Benchmark, Figure, Goal

_BOTH: Final = frozenset(("ottla", BASELINE))
_RATE: Final = 2_000


def _ratio(limit: float) -> dict[str, Goal]:
    return {"ottla": Goal("ratio", limit)}


@contextmanager
def _all_cores() -> Iterator[None]:
    """What is started in the block may use every core, as this process may."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


@contextmanager
def environment(contestant: Contestant, bench: Bench) -> Iterator[tuple[Postgres, OttlaProcess, WorkerProcess]]:
    """A database and a broker that run, and a worker that does not yet."""
    kind = OttlaConnect if contestant.name == "ottla" else GenuineConnect
    bench.data_root.mkdir(parents=True, exist_ok=True)
    settings = {"wal_level": "logical", "max_wal_size": "16GB", "shared_buffers": "512MB"}
    not_syncing = CONTESTANTS["ottla-nosync"].properties  # as Kafka does: small requests would wait for the disk
    broker = OttlaProcess(bench.data_root / f"broker-{time.monotonic_ns()}", properties=not_syncing)
    with _all_cores(), Postgres(**settings) as server:
        worker = kind(broker.bootstrap, bench.data_root / f"worker-{time.monotonic_ns()}")
        try:
            broker.start()
            warm_up(broker.bootstrap)
            yield server, broker, worker
        finally:
            worker.kill()
            broker.kill()


def _measure_capture(contestant: Contestant, bench: Bench) -> dict[str, float]:
    warm_up, changes = bench.scaled(60_000, 5_000), bench.scaled(300_000, 20_000)
    seconds = bench.scaled(20, 4)
    with environment(contestant, bench) as (server, broker, worker):
        shop = Shop(server)
        shop.fill(1)
        create_topic(broker.bootstrap, TOPIC, 1)
        with reading(broker.bootstrap) as reader:
            bench.say(f"{contestant.title}: a worker starts")
            worker.start(wait=False)
            worker.put("shop", shop.config())
            start_s = reader.first() - worker.spawned_at
            bench.say(f"{contestant.title}: {changes} changes")
            worker.wait("shop", "RUNNING")
            shop.change(warm_up)
            reader.read(warm_up * RECORDS_PER_TEN // 10)
            worker.change("shop", "stop")
            worker.wait("shop", "STOPPED", tasks=0)
            shop.change(changes)
            cpu_before = worker.cpu_seconds()
            worker.change("shop", "resume")
            *_, records_per_s = reader.read(changes * RECORDS_PER_TEN // 10)
            cpu_s = worker.cpu_seconds() - cpu_before
            bench.say(f"{contestant.title}: {_RATE} changes a second")
            with Steady(shop, _RATE) as load:
                reader.lags_ms(seconds / 3)
                lags = reader.lags_ms(seconds)
                rss_bytes = worker.rss_bytes()
        shop.close()
    if load.late_s > 0.2 or len(lags) < _RATE * seconds * 0.7:
        raise LoadFailedError(f"the load was late by {load.late_s:.1f} s, and {len(lags)} records came in {seconds} s")
    return {
        "start_s": start_s,
        "changes_per_s": records_per_s * 10 / RECORDS_PER_TEN,
        "cpu_us_per_change": cpu_s / changes * 1e6,
        "lag_p50_ms": percentile(lags, 0.5),
        "lag_p99_ms": percentile(lags, 0.99),
        "rss_mb": rss_bytes / 1e6,
    }


def _measure_snapshot(contestant: Contestant, bench: Bench) -> dict[str, float]:
    rows = bench.snapshot_rows or bench.scaled(2_000_000, 50_000)
    with environment(contestant, bench) as (server, broker, worker):
        bench.say(f"{contestant.title}: {rows} rows are made")
        shop = Shop(server)
        shop.fill(rows)
        create_topic(broker.bootstrap, TOPIC, 1)
        with reading(broker.bootstrap) as reader:
            worker.start()
            bench.say(f"{contestant.title}: {rows} rows are read")
            worker.put("shop", shop.config())
            _, _, rows_per_s = reader.read(rows)
            rss_mb = worker.rss_bytes() / 1e6
            cpu_s = worker.cpu_seconds()
        shop.close()
    return {"rows_per_s": rows_per_s, "cpu_us_per_row": cpu_s / rows * 1e6, "rss_mb": rss_mb}


CONNECT_CAPTURE: Final = Benchmark(
    "connect-capture",
    "Changes of a table of PostgreSQL into a topic, JSON with schemas: Ottla's worker, and Kafka Connect with Debezium",
    (
        Figure("changes_per_s", "changes of a backlog", "changes/s", "higher", _ratio(1.0)),
        Figure("cpu_us_per_change", "processor time of the worker for a change", "us", "lower"),
        Figure("lag_p50_ms", f"commit to consumer at {_RATE} changes/s, p50", "ms", "lower"),
        Figure("lag_p99_ms", f"commit to consumer at {_RATE} changes/s, p99", "ms", "lower", _ratio(0.5)),
        Figure("rss_mb", "memory of the worker afterwards", "MB", "lower", _ratio(0.25)),
        Figure("start_s", "worker's start to first event", "s", "lower", _ratio(0.2)),
    ),
    _measure_capture,
    disk_gb=3,
    contestants=_BOTH,
)

CONNECT_SNAPSHOT: Final = Benchmark(
    "connect-snapshot",
    "Snapshot of a table (2,000,000 rows, if not told otherwise): Ottla's worker, and Kafka Connect with Debezium",
    (
        Figure("rows_per_s", "rows in the topic", "rows/s", "higher", _ratio(1.0)),
        Figure("cpu_us_per_row", "processor time of the worker for a row, with its start", "us", "lower"),
        Figure("rss_mb", "memory of the worker afterwards", "MB", "lower"),
    ),
    _measure_snapshot,
    disk_gb=9,
    max_rounds=1,
    contestants=_BOTH,
)
