"""The page `/debug`: what a process is doing right now, for administrators on its machine."""

import asyncio
import gc
import sys
import threading
import traceback
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.replication.throughput import Throughput
    from ottla.server.context import Services
    from ottla.server.listeners import Listeners
    from ottla.server.metrics.gathering import Meters

MOST_TASKS: Final = 200
MOST_CLIENTS: Final = 50
MOST_TOPICS: Final = 100
MOST_GAUGES: Final = 100
FRAMES: Final = 6


def broker_page(services: "Services") -> dict[str, Any]:
    """A broker's memory, throughput and clients, for JSON. On the loop's thread; bounded."""
    total = services.replicas.throughput.total()
    by_topic = sorted(services.replicas.throughput, key=lambda each: each[1].produced_bytes, reverse=True)
    return {
        "memory": {
            "requests_and_replies_bytes": services.memory.held_bytes,
            "limit_bytes": services.memory.limit_bytes,
            "parked_fetches": len(services.replicas.parked_fetches),
            "fetch_sessions": len(services.fetch_sessions),
            "python_objects_by_generation": gc.get_count(),
        },
        "throughput": _throughput(total),
        "topics": {topic: _throughput(counts) for topic, counts in by_topic[:MOST_TOPICS]},
        "client_metrics": _client_metrics(services),
    }


def process_page(meters: "Meters", listeners: "Listeners", now_s: float) -> dict[str, Any]:
    """A process's tasks, slow requests and busiest clients, for JSON. On the loop's thread; bounded."""
    tasks = list(asyncio.all_tasks())
    busiest = sorted(meters.requests.by_client.items(), key=lambda each: each[1].busy_s, reverse=True)
    return {
        "time": now_s,
        "requests": sum(api.total.count for api in meters.requests.by_api.values()),
        "event_loop_delay_seconds": meters.loop_delay.durations.quantiles(now_s, (0.5, 0.99)),
        "connections": listeners.connection_counts(),
        "slowest_requests": [
            {
                "at": datetime.fromtimestamp(slow.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
                "milliseconds": round(slow.duration_s * 1000, 3),
                "local_milliseconds": round(slow.local_s * 1000, 3),
                "request": f"{slow.api} v{slow.version}",
                "bytes": slow.request_bytes,
                "client_id": slow.client_id,
                "address": slow.address,
                "principal": slow.principal,
            }
            for slow in meters.requests.slowest()
        ],
        "busiest_clients": [
            {
                "client_id": client_id,
                "address": address,
                "requests": counts.requests,
                "busy_seconds": round(counts.busy_s, 6),
                "request_bytes": counts.request_bytes,
                "reply_bytes": counts.reply_bytes,
            }
            for (client_id, address), counts in busiest[:MOST_CLIENTS]
        ],
        "tasks": {
            "count": len(tasks),
            "stacks": [
                {"name": task.get_name(), "at": [_place(frame) for frame in task.get_stack(limit=FRAMES)]}
                for task in tasks[:MOST_TASKS]
            ],
        },
    }


def _client_metrics(services: "Services") -> list[dict[str, Any]]:
    """What the clients that have pushed last have sent of themselves (KIP-714)."""
    series, now = services.telemetry.series, services.clock.monotonic()
    return [
        {
            "client_id": each.client_id,
            "software": each.software,
            "address": each.address,
            "seconds_ago": round(now - each.at_s, 3),
            "series": each.series,
            "gauges": dict(islice(each.values.items(), MOST_GAUGES)),
        }
        for each in (() if series is None else series.figures(now)[:MOST_CLIENTS])
    ]


def _throughput(counts: "Throughput") -> dict[str, int]:
    return {
        "produced_records": counts.produced_records,
        "produced_bytes": counts.produced_bytes,
        "fetched_bytes": counts.fetched_bytes,
    }


def thread_stacks() -> dict[str, list[str]]:
    """Where each thread of the process is; on any thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        f"{names.get(ident, 'unknown')} ({ident})": [
            f"{entry.filename}:{entry.lineno} {entry.name}" for entry in traceback.extract_stack(frame)[-FRAMES:]
        ]
        for ident, frame in sys._current_frames().items()
    }


def _place(frame: Any) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
