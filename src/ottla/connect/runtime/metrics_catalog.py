"""Every metric of a worker, as it is declared (docs/metrics.md is printed from it).

Names and labels are those by which dashboards for Kafka Connect's JMX metrics read them. Those that rise for as long as
a task runs are gauges, as the JMX exporter's rules make them; `rate` works on them all the same.
"""

from typing import Final

from ottla.metrics.families import Family, gauge
from ottla.metrics.process import FAMILIES as _OF_PROCESSES

_WORKER: Final = "kafka_connect_worker"
CONNECTOR_COUNT: Final = gauge(f"{_WORKER}_connector_count", "connectors", "Connectors whose status this worker wrote.")
TASK_COUNT: Final = gauge(f"{_WORKER}_task_count", "tasks", "Tasks that run in this worker.")
REBALANCING: Final = gauge(
    f"{_WORKER}_rebalance_rebalancing", "", "1 while this worker has no assignment from its group, else 0."
)
EPOCH: Final = gauge(f"{_WORKER}_rebalance_epoch", "", "Generation of the last assignment of tasks.")
LEADING: Final = gauge("ottla_connect_worker_leads", "", "1 on the worker that assigns the tasks, else 0.")
BROKERS_AWAY: Final = gauge(
    "ottla_connect_brokers_away", "", "1 while no broker of bootstrap.servers accepts connections."
)

STATE: Final = gauge(
    "kafka_connect_connector_status",
    "",
    "1 for the state of a task that this worker has run, and, without the label task, of a connector.",
    "connector",
    "status",
    "task",
)
TASKS_BY_STATE: Final = {
    state: gauge(
        f"{_WORKER}_connector_{state}_task_count",
        "tasks",
        f"Tasks of a connector on this worker{'' if state == 'total' else f' that are {state}'}.",
        "connector",
    )
    for state in ("total", "running", "paused", "failed", "unassigned", "restarting")
}


def _of_task(name: str, unit: str, doc: str) -> Family:
    return gauge(f"kafka_connect_{name}", unit, doc, "connector", "task")


BATCH_MEAN: Final = _of_task("connector_task_batch_size_avg", "records", "Mean size of batches, of the last minute.")
BATCH_MAX: Final = _of_task("connector_task_batch_size_max", "records", "Largest batch of the last minute.")
COMMIT_MEAN: Final = _of_task(
    "connector_task_offset_commit_avg_time_ms", "milliseconds", "Mean time of a commit, of the last minute."
)
COMMIT_MAX: Final = _of_task(
    "connector_task_offset_commit_max_time_ms", "milliseconds", "Longest commit of the last minute."
)
COMMIT_SUCCESS: Final = _of_task(
    "connector_task_offset_commit_success_percentage", "share, from 0 to 1", "Commits that succeeded, since the start."
)
COMMIT_FAILURE: Final = _of_task(
    "connector_task_offset_commit_failure_percentage", "share, from 0 to 1", "Commits that failed, since the start."
)

_SOURCE: Final = "source_task_source_record"
POLLED: Final = _of_task(f"{_SOURCE}_poll_total", "records", "Records that the source has read.")
POLL_RATE: Final = _of_task(f"{_SOURCE}_poll_rate", "records per second", "The same, over the last minute.")
WRITTEN: Final = _of_task(f"{_SOURCE}_write_total", "records", "Records written to topics, and committed.")
WRITE_RATE: Final = _of_task(f"{_SOURCE}_write_rate", "records per second", "The same, over the last minute.")
ACTIVE: Final = _of_task(f"{_SOURCE}_active_count", "records", "Records that are read and not committed yet.")
TRANSACTION_MEAN: Final = _of_task(
    "source_task_transaction_size_avg", "records", "Mean size of transactions, of the last minute."
)
TRANSACTION_MAX: Final = _of_task(
    "source_task_transaction_size_max", "records", "Largest transaction of the last minute."
)

_SINK: Final = "sink_task_sink_record"
READ: Final = _of_task(f"{_SINK}_read_total", "records", "Records consumed for the sink.")
READ_RATE: Final = _of_task(f"{_SINK}_read_rate", "records per second", "The same, over the last minute.")
SENT: Final = _of_task(f"{_SINK}_send_total", "records", "Records that the target has taken.")
SEND_RATE: Final = _of_task(f"{_SINK}_send_rate", "records per second", "The same, over the last minute.")
PUT_MEAN: Final = _of_task(
    "sink_task_put_batch_avg_time_ms",
    "milliseconds",
    "Mean time in which the target takes a batch, of the last minute.",
)
PUT_MAX: Final = _of_task("sink_task_put_batch_max_time_ms", "milliseconds", "Longest such time of the last minute.")
PARTITIONS: Final = _of_task("sink_task_partition_count", "partitions", "Partitions that the task reads.")
COMPLETIONS: Final = _of_task("sink_task_offset_commit_completion_total", "commits", "Commits of offsets.")

_ERRORS: Final = "task_error"
RECORD_FAILURES: Final = _of_task(f"{_ERRORS}_total_record_failures", "records", "Records that were refused.")
RECORDS_SKIPPED: Final = _of_task(
    f"{_ERRORS}_total_records_skipped", "records", "Refused records that were skipped (errors.tolerance=all)."
)
ERRORS_LOGGED: Final = _of_task(f"{_ERRORS}_total_errors_logged", "records", "Refused records that were logged.")
RETRIES: Final = _of_task(f"{_ERRORS}_total_retries", "attempts", "What was tried again.")
DEAD_LETTERS: Final = _of_task(
    f"{_ERRORS}_deadletterqueue_produce_requests", "records", "Records written to the dead-letter topic, or tried to."
)
DEAD_LETTER_FAILURES: Final = _of_task(
    f"{_ERRORS}_deadletterqueue_produce_failures", "records", "Those that the dead-letter topic did not take."
)
LAST_ERROR: Final = _of_task(
    f"{_ERRORS}_last_error_timestamp", "milliseconds since 1970", "When a record was refused last; 0: never."
)
TASK_RESTARTS: Final = gauge(
    "ottla_connect_task_attempts",
    "attempts",
    "How often a running task has begun again by itself.",
    "connector",
    "task",
)
DELIVERY_AGE: Final = gauge(
    "ottla_connect_source_delivery_age_seconds",
    "seconds",
    "Time since the task's last delivery of a change.",
    "connector",
    "task",
)

FAMILIES: Final = (
    *_OF_PROCESSES,
    *TASKS_BY_STATE.values(),
    *(value for value in list(globals().values()) if isinstance(value, Family)),
)
