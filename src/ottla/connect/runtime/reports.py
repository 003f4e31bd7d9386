"""What a worker writes into the statuses of connectors and of its tasks: also their progress, now and then."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.errors import ConfigError
from ottla.connect.herder.state import Assignment, TaskId
from ottla.connect.runtime.plugins import connector_class, version_of
from ottla.connect.runtime.statuses import Statuses, status_value
from ottla.connect.runtime.task import BasicContext, Delivery, Task, WorkerEnvironment

_EVERY_S: Final = 1.0
_DELIVERY_EVERY_MS: Final = 2_000
"""Minimum time between two statuses that differ in the last delivery alone: a busy source always has a new one."""
_Shown = tuple[Mapping[str, tuple[int, int | None]], str | None, Delivery | None]
"""A running task's progress, warning and delivery, as its status shows them."""
_NOTHING: Final[_Shown] = ({}, None, None)


class Reports:
    """Statuses of one worker. Called by its own thread, those of its tasks, and those that plan connectors.

    config_of: a connector's configuration; empty if it is gone.
    """

    def __init__(
        self,
        worker: str,
        statuses: Statuses,
        environment: WorkerEnvironment,
        assignment: Callable[[], Assignment],
        config_of: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._worker, self._statuses, self._environment = worker, statuses, environment
        self._assignment, self._config_of = assignment, config_of
        self._shown: dict[TaskId, _Shown] = {}
        self._looked_at = 0.0

    def connector(self, name: str, state: str, trace: str | None) -> None:
        """Write the status of a connector. Raises ConnectError."""
        Statuses.put_connector(self._environment.logs, name, self._value(name, state, trace))

    def task(self, task: TaskId, state: str, trace: str | None, context: BasicContext | None) -> None:
        """Write the status of a task. context: of its run; None: it has none. Raises ConnectError."""
        known = self._statuses.task(task)
        warning = None if context is None else context.warning
        delivery = None if context is None else context.delivery
        before = None if known is None else known.get("delivery")
        value = self._value(
            task.connector,
            state,
            trace,
            progress=None if context is None else {what: list(count) for what, count in context.made.items()},
            warning=None if warning is None else self._environment.secrets.clean(warning),
            delivery=before if delivery is None else delivery.reported(before),
        )
        Statuses.put_task(self._environment.logs, task, value)

    def forget(self, task: TaskId) -> None:
        """Remove the status of a task. Raises ConnectError."""
        Statuses.put_task(self._environment.logs, task, None)

    def run_over(self, task: TaskId) -> None:
        """Forget what the status showed of a run."""
        self._shown.pop(task, None)

    def progress(self, running: Mapping[TaskId, Task]) -> None:
        """Let tasks report again whose progress, warning or last delivery has changed; at most once a second."""
        if time.monotonic() - self._looked_at < _EVERY_S:  # a report wakes the worker's thread when it has been read
            return
        self._looked_at = time.monotonic()
        for task, each in running.items():
            context = each.context
            now = (context.made, context.warning, self._shown_delivery(task, context.delivery))
            status = self._statuses.task(task)
            # a worker that was away reports that of a task it had, although another one runs it by now
            is_hidden = status is not None and status.get("state") == "UNASSIGNED"
            if each.alive and (is_hidden or self._shown.get(task, _NOTHING) != now):
                self._shown[task] = now
                each.tell_again()

    def _shown_delivery(self, task: TaskId, delivery: Delivery | None) -> Delivery | None:
        """The delivery that a status is to have now: a busy source delivers many times a second."""
        _, _, shown = self._shown.get(task, _NOTHING)
        if shown is None or shown.delivered_at is None:
            return delivery
        return delivery if time.time_ns() // 1_000_000 - shown.delivered_at >= _DELIVERY_EVERY_MS else shown

    def _value(self, name: str, state: str, trace: str | None, **extra: Any) -> dict[str, Any]:
        generation = self._assignment().generation
        return status_value(state, self._worker, generation, trace=trace, version=self._version(name), **extra)

    def _version(self, name: str) -> str | None:
        try:
            found = connector_class(self._config_of(name).get("connector.class"), self._environment.permissions)
        except ConfigError:
            return None
        return version_of(found)
