"""The metrics and the health of a worker (`metrics.listeners`), read from what its parts know anyway."""

import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from typing import Final

from ottla.connect.herder.state import TaskId
from ottla.connect.runtime import metrics_catalog as catalog
from ottla.connect.runtime.figures import TaskFigures
from ottla.connect.runtime.source_task import SourceTask
from ottla.connect.runtime.task import Task
from ottla.connect.runtime.worker import Worker
from ottla.metrics.families import Measurements
from ottla.metrics.health import Health
from ottla.metrics.process import serving_metrics

MILLISECONDS: Final = 1e3
MOST_TASKS: Final = 5_000
"""Tasks that have series of their own."""
MOST_NAMED: Final = 10
"""Failed tasks that are named by health."""


def metrics_of(worker: Worker) -> AbstractContextManager[list[int]]:
    """Serves the metrics of a worker at its `metrics.listeners`; nothing if there are none."""
    listeners = worker.environment.settings.metrics_listeners
    return serving_metrics(listeners, lambda to: gather(worker, to), lambda: health_of(worker), lambda: worker.lives)


def health_of(worker: Worker) -> Health:
    """Whether a worker can run connectors, and which of its tasks have failed."""
    reasons, warnings = [], []
    settings = worker.environment.settings
    if worker.stopping.is_set():
        reasons.append("the worker is stopping")
    elif not worker.ready.is_set():
        reasons.append("the worker is starting: it reads configurations, positions and statuses")
    elif not worker.membership.settled:
        reasons.append(f"the worker has no assignment from group {settings.group_id!r} yet: a rebalance is under way")
    if worker.environment.brokers.away:
        reasons.append(f"no broker at {settings.bootstrap_servers} accepts connections: tasks wait until one does")
    connectors, tasks = worker.statuses.of_worker(worker.address)
    failed = [
        *(f"connector {name}" for name, status in connectors.items() if status.get("state") == "FAILED"),
        *(f"task {task}" for task, status in tasks.items() if status.get("state") == "FAILED"),
    ]
    warnings += [f"{each} has failed: its status has the reason" for each in failed[:MOST_NAMED]]
    if len(failed) > MOST_NAMED:
        warnings.append(f"{len(failed) - MOST_NAMED} more have failed")
    return Health(reasons, warnings)


def gather(worker: Worker, to: Measurements) -> None:
    """Everything of this worker and the tasks that run in it."""
    running = worker.running()
    connectors, statuses = worker.statuses.of_worker(worker.address)
    to.add(catalog.CONNECTOR_COUNT, len(connectors))
    to.add(catalog.TASK_COUNT, len(running))
    to.add(catalog.REBALANCING, not worker.membership.settled)
    to.add(catalog.LEADING, worker.membership.leading)
    to.add(catalog.BROKERS_AWAY, worker.environment.brokers.away)
    with worker.lock:
        to.add(catalog.EPOCH, worker.state.assignment.generation)
    for name, status in list(connectors.items())[:MOST_TASKS]:
        to.add(catalog.STATE, 1, name, str(status.get("state")).lower())
    shown = dict(list(statuses.items())[:MOST_TASKS])
    _states({task: str(status.get("state")).lower() for task, status in shown.items()}, to)
    now = time.monotonic()
    for task, each in running.items():
        if task in shown:
            _task(task, each, now, to)


def _states(states: dict[TaskId, str], to: Measurements) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for task, state in states.items():
        to.add(catalog.STATE, 1, task.connector, state, str(task.task))
        counts[task.connector]["total"] += 1
        counts[task.connector][state] += 1
    for connector, by_state in counts.items():
        for state, family in catalog.TASKS_BY_STATE.items():
            to.add(family, by_state[state], connector)


def _task(task: TaskId, running: Task, now: float, to: Measurements) -> None:
    labels = task.connector, str(task.task)
    figures, errors = running.figures, running.figures.errors
    for family, value in (
        (catalog.BATCH_MEAN, figures.batches.mean(now)),
        (catalog.BATCH_MAX, figures.batches.largest(now)),
        (catalog.COMMIT_MEAN, figures.commits.mean(now) * MILLISECONDS),
        (catalog.COMMIT_MAX, figures.commits.largest(now) * MILLISECONDS),
        (catalog.RECORD_FAILURES, errors.failures),
        (catalog.RECORDS_SKIPPED, errors.skipped),
        (catalog.ERRORS_LOGGED, errors.logged),
        (catalog.RETRIES, errors.retries),
        (catalog.DEAD_LETTERS, errors.dead_letters),
        (catalog.DEAD_LETTER_FAILURES, errors.dead_letter_failures),
        (catalog.LAST_ERROR, errors.last_at_ms),
        (catalog.TASK_RESTARTS, running.restarts),
    ):
        to.add(family, value, *labels)
    commits = figures.commits.count + figures.commit_failures
    if commits:
        to.add(catalog.COMMIT_SUCCESS, figures.commits.count / commits, *labels)
        to.add(catalog.COMMIT_FAILURE, figures.commit_failures / commits, *labels)
    if isinstance(running, SourceTask):
        _source(running, figures, now, labels, to)
    else:
        _sink(figures, now, labels, to)


def _source(running: SourceTask, figures: TaskFigures, now: float, labels: tuple[str, str], to: Measurements) -> None:
    for family, value in (
        (catalog.POLLED, figures.records_in),
        (catalog.POLL_RATE, figures.reads.rate(now)),
        (catalog.WRITTEN, figures.writes.total),
        (catalog.WRITE_RATE, figures.writes.rate(now)),
        (catalog.ACTIVE, figures.active),
        (catalog.TRANSACTION_MEAN, figures.batches.mean(now)),
        (catalog.TRANSACTION_MAX, figures.batches.largest(now)),
    ):
        to.add(family, value, *labels)
    delivery = running.context.delivery
    if delivery is not None and delivery.delivered_at is not None:
        to.add(catalog.DELIVERY_AGE, max(time.time() - delivery.delivered_at / MILLISECONDS, 0.0), *labels)


def _sink(figures: TaskFigures, now: float, labels: tuple[str, str], to: Measurements) -> None:
    for family, value in (
        (catalog.READ, figures.records_in),
        (catalog.READ_RATE, figures.reads.rate(now)),
        (catalog.SENT, figures.records_out),
        (catalog.SEND_RATE, figures.writes.rate(now)),
        (catalog.PUT_MEAN, figures.puts.mean(now) * MILLISECONDS),
        (catalog.PUT_MAX, figures.puts.largest(now) * MILLISECONDS),
        (catalog.PARTITIONS, figures.partitions),
        (catalog.COMPLETIONS, figures.commits.count),
    ):
        to.add(family, value, *labels)
