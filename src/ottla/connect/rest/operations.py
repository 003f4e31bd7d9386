"""The operations of the REST API: queries of the state, and changes of it, which are records.

The leader makes changes, and the worker of a task makes those of the task; `rest.py` forwards requests. Shapes and
messages are Kafka Connect 4.1's, which consoles know.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.errors import ConfigError, ConnectError, Fenced
from ottla.connect.herder.state import CONNECTOR, LOGGER, RESTART, TARGET_STATE, Target, TaskId
from ottla.connect.rest.validation import all_definitions, validate
from ottla.connect.runtime import sink_offsets, source_lag
from ottla.connect.runtime.connector_config import is_secret
from ottla.connect.runtime.plugins import UNDEFINED, connector_class, kind_of
from ottla.connect.runtime.positions import position_value
from ottla.connect.runtime.statuses import Statuses
from ottla.connect.runtime.worker import Worker

Config = Mapping[str, str]

_REBALANCE_S: Final = 30.0
"""How long a request waits for a rebalance to end. Workers find together in seconds, and miss a dead one in ten."""
_POLL_INTERVAL_S: Final = 0.05

_STATES: Final = {"RUNNING": Target.STARTED, "PAUSED": Target.PAUSED, "STOPPED": Target.STOPPED}


class Refused(Exception):
    """An answer that is an error: its HTTP status and its sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Elsewhere(Exception):
    """Another worker has to do it: `host:port`."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


class Operations:
    """One worker's. Every method may raise Refused; those that change something, Elsewhere too."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._changing = threading.Lock()
        """Held between looking at a configuration and changing it."""

    def clean(self, text: str) -> str:
        """A text without secrets."""
        return self._worker.environment.secrets.clean(text)

    def password_names(self, connector: str) -> frozenset[str]:
        """The settings of a `connector.class` that are passwords."""
        try:
            model = connector_class(connector, self._worker.environment.permissions).settings_model
        except ConfigError:
            return frozenset()
        return frozenset(field.alias or name for name, field in model.model_fields.items() if is_secret(model, name))

    # -- questions ---------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The connectors."""
        with self._worker.lock:
            return list(self._worker.state.connectors)

    def info(self, name: str) -> dict[str, Any]:
        """`GET /connectors/NAME`."""
        config, tasks = self._connector(name)
        ids = [{"connector": name, "task": number} for number in range(len(tasks))]
        return {"name": name, "config": config, "tasks": ids, "type": self._kind(config)}

    def config(self, name: str) -> Mapping[str, str]:
        """`GET /connectors/NAME/config`."""
        return self._connector(name)[0]

    def status(self, name: str) -> dict[str, Any]:
        """`GET /connectors/NAME/status`."""
        config, known = self._connector(name, f"No status found for connector {name}")
        own = self._worker.statuses.connector(name)
        if own is None:
            raise Refused(404, f"No status found for connector {name}")
        # one that has just been given up may still write its last word
        told = {n: each for n, each in self._worker.statuses.tasks(name).items() if n < len(known)}
        tasks = [{"id": n, **_shown(each)} for n, each in told.items()]
        return {
            "name": name,
            "connector": _shown(own),
            "tasks": tasks,
            "type": self._kind(config),
        }

    def task_status(self, name: str, number: int) -> dict[str, Any]:
        """`GET /connectors/NAME/tasks/N/status`."""
        status = self._worker.statuses.task(TaskId(name, number))
        if status is None:
            raise Refused(404, f"No status found for task {name}-{number}")
        return {"id": number, **_shown(status)}

    def progress(self, name: str) -> list[dict[str, Any]]:
        """Ottla's own `GET /connectors/NAME/progress`: progress reports of tasks, their warnings, and for a source the
        last change that it has delivered."""
        self._connector(name)
        return [
            {
                "id": n,
                "progress": dict(each.get("progress") or {}),
                "warning": each.get("warning"),
                "delivery": source_lag.delivery(each.get("delivery"), time.time_ns() // 1_000_000),
            }
            for n, each in self._worker.statuses.tasks(name).items()
        ]

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """`GET /connectors/NAME/tasks`."""
        _, tasks = self._connector(name)
        return [{"id": {"connector": name, "task": n}, "config": dict(each)} for n, each in enumerate(tasks)]

    def topics(self, name: str) -> dict[str, Any]:
        """`GET /connectors/NAME/topics`."""
        self._tracking()
        return {name: {"topics": self._worker.statuses.topics(name)}}

    def forget_topics(self, name: str) -> None:
        """`PUT /connectors/NAME/topics/reset`."""
        self._tracking()
        if not self._worker.environment.settings.topic_tracking_allow_reset:
            raise Refused(403, "Topic tracking reset is disabled.")
        self._worker.used_topics.forget(name)

    def definitions(self, plugin: str) -> list[dict[str, Any]]:
        """`GET /connector-plugins/NAME/config`."""
        try:
            return all_definitions(connector_class(plugin, self._worker.environment.permissions))
        except ConfigError:
            raise Refused(404, f"Unknown plugin {plugin}.") from None

    def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """`PUT /connector-plugins/NAME/config/validate`."""
        given = config.get("connector.class")
        if given is not None and not _bare(given).endswith(_bare(plugin)):
            raise Refused(400, f"Included connector type {given} does not match request type {plugin}")
        try:
            return validate({"connector.class": plugin, **config}, self._worker.environment)
        except ConfigError as wrong:
            raise Refused(400, str(wrong)) from None

    # -- changes -----------------------------------------------------------------------------------------------------

    def create(self, name: str, config: Mapping[str, str], initial_state: str | None) -> dict[str, Any]:
        """`POST /connectors`."""
        config = _named(name, config)
        if initial_state is not None and initial_state.upper() not in _STATES:
            raise Refused(400, f"No initial_state {initial_state}; it is one of {', '.join(_STATES)}")
        self._accept(config)
        self._lead()
        with self._changing:
            if name in self.names():
                raise Refused(409, f"Connector {name} already exists")
            if initial_state is not None:
                self._put_target(name, _STATES[initial_state.upper()])
            self._put(CONNECTOR + name, {"properties": config})
        return self.info(name)

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        """`PUT /connectors/NAME/config`: whether it is new, and what it is now."""
        config = _named(name, config)
        self._accept(config)
        self._lead()
        with self._changing:
            created = name not in self.names()
            self._put(CONNECTOR + name, {"properties": config})
        return created, self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        """`PATCH /connectors/NAME/config`: a null takes a setting away."""
        self._lead()
        while True:
            before, _ = self._connector(name)
            merged: dict[str, str | None] = {**before, **changes}
            config = _named(name, {key: text for key, text in merged.items() if text is not None})
            self._accept(config)  # which may take long
            with self._changing:
                if self._connector(name)[0] == before:
                    self._put(CONNECTOR + name, {"properties": config})
                    return self.info(name)

    def delete(self, name: str) -> None:
        """`DELETE /connectors/NAME`."""
        self._lead()
        with self._changing:
            _, tasks = self._connector(name)
            known = self._worker.statuses.tasks(name)
            self._put(CONNECTOR + name, None)
            self._put(TARGET_STATE + name, None)
            self._worker.used_topics.forget(name)
            Statuses.put_connector(self._worker.environment.logs, name, None)
            for number in {*known, *range(len(tasks))}:
                Statuses.put_task(self._worker.environment.logs, TaskId(name, number), None)

    def set_target(self, name: str, target: Target) -> None:
        """`PUT /connectors/NAME/{pause,resume,stop}`."""
        self._connector(name, f"Unknown connector {name}")
        self._lead()
        with self._changing:
            self._connector(name, f"Unknown connector {name}")  # or the next one of that name would begin so
            self._put_target(name, target)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """`POST /connectors/NAME/restart`: the status, with what is restarted as RESTARTING."""
        self._lead()
        self._connector(name, f"Unknown connector: {name}")
        status = self.status(name)
        self._put(RESTART + name, {"include-tasks": include_tasks, "only-failed": only_failed})
        for each in [status["connector"], *(status["tasks"] if include_tasks else ())]:
            if not only_failed or each["state"] == "FAILED":
                each["state"] = "RESTARTING"
        return status

    def restart_task(self, name: str, number: int) -> None:
        """`POST /connectors/NAME/tasks/N/restart`."""
        _, tasks = self._connector(name, f"Unknown connector: {name}")
        if number >= len(tasks):
            raise Refused(404, f"Unknown task: {name}-{number}")
        task = TaskId(name, number)
        owner = self._after_rebalance(lambda: self._owner(task))
        if owner != self._worker.address:
            raise Elsewhere(owner)
        self._worker.restart_task(task)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def offsets(self, name: str) -> dict[str, Any]:
        """`GET /connectors/NAME/offsets`."""
        config, _ = self._connector(name)
        if self._kind(config) == "sink":
            return {"offsets": sink_offsets.committed(name, config, self._worker.environment)}
        self._worker.environment.logs.catch_up("offsets")
        known = self._worker.environment.positions.all_of(name)
        return {"offsets": [{"partition": part, "offset": position} for part, position in known]}

    def alter_offsets(self, name: str, offsets: Any) -> dict[str, str]:
        """`PATCH /connectors/NAME/offsets`."""
        if not isinstance(offsets, list) or not offsets:
            raise Refused(400, "Partitions / offsets need to be provided for an alter offsets request")
        config = self._stopped(name)
        if self._kind(config) == "sink":
            self._tell(sink_offsets.alter, name, config, offsets)
        else:
            for part, position in [_source_offset(each) for each in offsets]:  # all are right before one is changed
                self._move(name, part, position)
        return {"message": "The offsets for this connector have been altered successfully"}

    def reset_offsets(self, name: str) -> dict[str, str]:
        """`DELETE /connectors/NAME/offsets`."""
        config = self._stopped(name)
        if self._kind(config) == "sink":
            self._tell(sink_offsets.reset, name, config)
        else:
            self._worker.environment.logs.catch_up("offsets")
            for part, _ in self._worker.environment.positions.all_of(name):
                self._move(name, part, None)
        return {"message": "The offsets for this connector have been reset successfully"}

    def lag(self, name: str) -> list[dict[str, Any]]:
        """Ottla's own `GET /connectors/NAME/lag`: for a sink, how many records of each partition it has not written;
        for a source, how many bytes of its source's log each part is behind."""
        config, _ = self._connector(name)
        if self._kind(config) == "sink":
            return sink_offsets.lag(name, config, self._worker.environment)
        self._worker.environment.logs.catch_up("offsets")
        return source_lag.lag(name, config, self._worker.environment)

    # -- loggers -----------------------------------------------------------------------------------------------------

    def set_cluster_level(self, logger: str, level: str) -> None:
        """`PUT /admin/loggers/NAME?scope=cluster`."""
        self._put(LOGGER + logger, {"level": level})

    # -- within ------------------------------------------------------------------------------------------------------

    def _kind(self, config: Mapping[str, str]) -> str:
        with contextlib.suppress(ConfigError):
            return kind_of(connector_class(config.get("connector.class"), self._worker.environment.permissions))
        return "unknown"

    def _connector(
        self, name: str, otherwise: str | None = None
    ) -> tuple[Mapping[str, str], tuple[Mapping[str, str], ...]]:
        with self._worker.lock:
            found = self._worker.state.connectors.get(name)
            if found is None:
                raise Refused(404, otherwise or f"Connector {name} not found")
            return found.config, found.tasks

    def _lead(self) -> None:
        """Go on as leader. Raises Elsewhere, or Refused if no worker leads."""
        leader = self._after_rebalance(self._worker.leader)
        if leader != self._worker.address:
            raise Elsewhere(leader)

    def _after_rebalance(self, worker: Callable[[], str | None]) -> str:
        """The worker that a request is for, once a rebalance has ended that is under way. Raises Refused.

        Kafka's workers let requests wait too, for 90 s: what made a worker's first answers does not try again.
        """
        deadline = time.monotonic() + _REBALANCE_S
        while True:
            found = worker()
            if found is not None:
                return found
            if time.monotonic() > deadline or self._worker.stopping.wait(_POLL_INTERVAL_S):
                raise _rebalancing()

    def _accept(self, config: Mapping[str, str]) -> None:
        try:
            infos = validate(config, self._worker.environment)
        except ConfigError as wrong:
            raise Refused(400, str(wrong)) from None
        errors = [text for each in infos["configs"] for text in each["value"]["errors"]]
        if errors:
            listed = "\n".join(errors)
            raise Refused(
                400,
                f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{listed}\n"
                "You can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`",
            )

    def _stopped(self, name: str) -> Mapping[str, str]:
        self._lead()
        config, tasks = self._connector(name)
        with self._worker.lock:
            target = self._worker.state.connectors[name].target
        running = any(each.get("state") == "RUNNING" for each in self._worker.statuses.tasks(name).values())
        if target is not Target.STOPPED or tasks or running:
            raise Refused(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        return config

    def _tell(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments, self._worker.environment)
        except ValueError as wrong:
            raise Refused(400, str(wrong)) from None
        except ConnectError as trouble:
            raise Refused(500, str(trouble)) from None

    def _move(self, name: str, part: Mapping[str, Any], position: Any) -> None:
        key = self._worker.environment.positions.key(name, part)
        self._worker.environment.logs.put("offsets", key, position_value(position))

    def _owner(self, task: TaskId) -> str | None:
        with self._worker.lock:
            return self._worker.state.assignment.owner(task)

    def _put_target(self, name: str, target: Target) -> None:
        old = "PAUSED" if target is Target.STOPPED else target  # for readers from before there was STOPPED
        self._put(TARGET_STATE + name, {"state": old, "state.v2": target})

    def _put(self, key: str, value: Mapping[str, Any] | None) -> None:
        try:
            self._worker.put_config(key, value)
        except Fenced:
            raise _rebalancing() from None
        except ConnectError as failure:
            raise Refused(500, str(failure)) from None

    def _tracking(self) -> None:
        if not self._worker.environment.settings.topic_tracking_enable:
            raise Refused(403, "Topic tracking is disabled.")


def _rebalancing() -> Refused:
    return Refused(
        409,
        "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
        "change)",
    )


def _shown(status: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"state": status.get("state"), "worker_id": status.get("worker_id")}
    if status.get("version") not in (None, UNDEFINED):
        shown["version"] = status["version"]
    if status.get("trace"):
        shown["trace"] = status["trace"]
    elif status.get("warning"):
        shown["trace"] = status["warning"]
    return shown


def _source_offset(given: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    part = given.get("partition") if isinstance(given, Mapping) else None
    if not isinstance(part, Mapping):
        raise Refused(400, "Each offset of a source has a `partition`, which is an object")
    position = given.get("offset")
    if not isinstance(position, Mapping | None):
        raise Refused(400, "The `offset` of a source is an object, or null")
    return part, position


def _named(name: str, config: Mapping[str, str]) -> dict[str, str]:
    if not name.strip():
        raise Refused(400, "Connector name is empty")
    control = [str(ord(each)) for each in name if ord(each) < ord(" ") or ord(each) == 0x7F]
    if control or "/" in name:
        what = f"control sequences but had the following ASCII chars: {', '.join(control)}" if control else "a slash"
        raise Refused(400, f"Connector name may not contain {what}")
    given = config.get("name", name)
    if given != name:
        raise Refused(400, f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})")
    return {**config, "name": name}


def _bare(plugin: str) -> str:
    return plugin.removesuffix("Connector") or plugin
