"""Which topics the tasks of connectors have used, in the topic of statuses (KIP-558)."""

import time

from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.logs import Logs
from ottla.connect.runtime.statuses import Statuses


class UsedTopics:
    """The topics that this worker's tasks have used. Called by the threads of tasks and of the REST API."""

    def __init__(self, logs: Logs, statuses: Statuses, *, is_tracking: bool) -> None:
        self._logs = logs
        self._statuses = statuses
        self._is_tracking = is_tracking
        self._seen: set[tuple[str, str]] = set()

    def note(self, task: TaskId, topic: str) -> None:
        """Record a topic when a connector first uses it, if the worker is to (`topic.tracking.enable`)."""
        if self._is_tracking and (task.connector, topic) not in self._seen:
            self._seen.add((task.connector, topic))
            Statuses.put_topic(self._logs, topic, task, time.time_ns() // 1_000_000)

    def forget(self, connector: str) -> None:
        """Reset the topics of a connector."""
        for topic in self._statuses.topics(connector):
            self._seen.discard((connector, topic))
            Statuses.put_topic(self._logs, topic, TaskId(connector, 0), None)
