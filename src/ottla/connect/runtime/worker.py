"""One worker: follows what is configured, runs its share of the tasks and, if it leads, shares them out.

A thread looks at everything whenever something has changed, and once a second: as leader (Kafka Connect's herder) it
plans connectors (asks them for their tasks) and assigns tasks; as a member it starts and stops those that are assigned
to it. What is asked over REST becomes records (`operations.py`), and takes effect when they come back.
"""

import collections
import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.connect.converters.json_converter import json_text
from ottla.connect.errors import ConfigError, ConnectError, Fenced, Retriable
from ottla.connect.herder.state import (
    ASSIGNMENT,
    COMMIT,
    LOGGER,
    TASK,
    Assignment,
    ClusterState,
    ConnectorState,
    Restart,
    Target,
    TaskId,
    assignment_value,
    share,
)
from ottla.connect.permissions import Permissions
from ottla.connect.runtime import loggers
from ottla.connect.runtime.brokers import Brokers
from ottla.connect.runtime.connector_config import parsed, runtime_model, unknown_settings, with_defaults
from ottla.connect.runtime.logs import FileLogs, Logs, TopicLogs
from ottla.connect.runtime.membership import Alone, Group, Membership
from ottla.connect.runtime.peers import Peers
from ottla.connect.runtime.plugins import check_paths, connector_class, kind_of, version_of
from ottla.connect.runtime.positions import Positions
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_task import SinkTask
from ottla.connect.runtime.source_task import SourceTask
from ottla.connect.runtime.statuses import Statuses, status_value
from ottla.connect.runtime.task import (
    CONNECTOR_LOG,
    BasicContext,
    Delivery,
    Task,
    WorkerEnvironment,
    sentence_of,
    traced,
)
from ottla.connect.runtime.threads import in_thread
from ottla.connect.runtime.used_topics import UsedTopics
from ottla.connect.runtime.worker_settings import TRANSACTIONAL, client_settings, worker_settings

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_DELIVERY_EVERY_MS: Final = 2_000
"""Minimum time between two statuses that differ in the last delivery alone: a busy source always has a new one."""
_Shown = tuple[Mapping[str, tuple[int, int | None]], str | None, Delivery | None]
"""A running task's progress, warning and delivery, as its status shows them."""
_NOTHING: Final[_Shown] = ({}, None, None)
_PLAN_AGAIN_S: Final = 10.0
"""How long after a failure a connector is asked for its tasks again."""
_PLANNING_S: Final = 30.0
"""Time for a connector to plan its tasks, after which its status reports the delay."""


@dataclass(slots=True, eq=False)
class _Plan:
    """A connector being asked for its tasks; its answer counts until it is asked anew. since: monotonic, in seconds."""

    revision: int
    since: float
    ended: bool = False


class Worker:
    """Starts and stops with `start` and `stop`.

    settings: a worker's, by Kafka Connect's names, with those of the clients. address: `host:port` of its REST API, its
    identity for the others. Raises ConfigError.
    """

    def __init__(self, settings: Mapping[str, str], address: str) -> None:
        self.state, self.statuses, self.secrets = ClusterState(), Statuses(), Secrets()
        settings = self.secrets.resolve(settings)
        self.secrets.limit(settings)
        permissions = Permissions(settings)
        self._brokers = Brokers(str(client_settings(settings)["bootstrap.servers"]))
        self.settings = worker_settings(settings)
        self.address = address
        self.lock = threading.RLock()
        """Held while `state` is read or changed."""
        positions = Positions()
        self.logs: Logs = self._logs(settings)
        converters = {
            **settings,
            "key.converter": self.settings.key_converter,
            "value.converter": self.settings.value_converter,
            "header.converter": self.settings.header_converter,
        }
        self.environment = WorkerEnvironment(
            self.settings, settings, converters, self.logs, positions, self.secrets, permissions, self._brokers
        )
        self.membership: Membership = self._membership(settings)
        self._peers = Peers(self.changed)
        self._tasks: dict[TaskId, tuple[Task, object]] = {}
        self._failed: dict[TaskId, object] = {}
        self._written: dict[TaskId, _Shown] = {}
        self.used_topics = UsedTopics(self.logs, self.statuses, is_tracking=self.settings.topic_tracking_enable)
        self._restarts: collections.deque[Restart | TaskId] = collections.deque()
        self._plans: dict[str, _Plan] = {}
        self._committing = threading.Lock()
        self._plan_again: set[str] = set()
        self._plan_failed: dict[str, tuple[int, float]] = {}
        self._ending_since: dict[str, float] = {}
        self._waiting_since: dict[TaskId, float] = {}
        self._unsettled_since: float | None = None
        self._cluster_id: str | None = None
        self._leading = False
        self._told_at = 0.0
        self._wake = threading.Event()
        self.stopping = threading.Event()
        """Set when it is to stop."""
        self._thread = threading.Thread(target=self._main, name="connect worker", daemon=True)
        self.ready = threading.Event()
        """Set when the state has been read."""

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the state, join the others, and go on in the background. Raises ConnectError."""
        self.membership.connect()
        self.logs.start()
        self.membership.start()
        self._thread.start()
        self._brokers.start()
        if not self.settings.standalone:
            self._peers.start()
        self.ready.set()

    def stop(self) -> None:
        """Stop the tasks, leave the group."""
        self.stopping.set()
        self._wake.set()
        with ExitStack() as steps:  # each is made, though one before it fails: brokers may be away
            steps.callback(self.logs.close)
            steps.callback(self.membership.stop)
            if self._thread.ident is not None:
                self._thread.join()
            self._peers.stop()
            self._brokers.stop()
            self._stop_tasks(list(self._tasks))

    def changed(self) -> None:
        """Look at everything soon."""
        self._wake.set()

    def _logs(self, raw: Mapping[str, str]) -> Logs:
        settings = self.settings
        if settings.offset_storage_file_filename is not None:
            return FileLogs(Path(settings.offset_storage_file_filename), self._on_record)
        topics = {
            "configs": (settings.config_storage_topic, 1, settings.config_storage_replication_factor),
            "offsets": (
                settings.offset_storage_topic,
                settings.offset_storage_partitions,
                settings.offset_storage_replication_factor,
            ),
            "status": (
                settings.status_storage_topic,
                settings.status_storage_partitions,
                settings.status_storage_replication_factor,
            ),
        }
        return TopicLogs(topics, client_settings(raw), f"connect-cluster-{settings.group_id}", self._on_record)

    def _membership(self, raw: Mapping[str, str]) -> Membership:
        settings = self.settings
        if settings.standalone:
            return Alone(self.address)
        timing = {
            "session": settings.session_timeout_ms,
            "heartbeat": settings.heartbeat_interval_ms,
            "rebalance": settings.rebalance_timeout_ms,
        }
        topic = settings.config_storage_topic
        return Group(self.address, settings.group_id, topic, client_settings(raw), timing, self.changed)

    def _on_record(self, name: str, key: bytes, value: bytes | None, offset: int) -> None:
        if name == "offsets":
            self.environment.positions.replay(key, value)
            return
        if name == "status":
            self.statuses.replay(key, value)
            self._wake.set()
            return
        try:
            parsed_value = None if value is None else json.loads(value)
        except ValueError:
            parsed_value = value
        if not isinstance(parsed_value, dict | None):
            log.warning("the configuration %r is no object in JSON, and is left alone", key)
            return
        text = key.decode(errors="replace")
        if text.startswith(LOGGER):
            if self.ready.is_set() and parsed_value is not None:
                loggers.set_level(text.removeprefix(LOGGER), str(parsed_value.get("level")))
            return
        with self.lock:
            restart = self.state.replay(text, parsed_value, offset)
        if restart is not None and self.ready.is_set():  # older ones were handled by the workers of that time
            self._restarts.append(restart)
        self._wake.set()

    def leader(self) -> str | None:
        """The address of the worker that may write configurations; None: none may now, or it is not known which."""
        if not self.membership.settled:
            return None
        if self.membership.leading:
            return self.address if self.logs.leads else None
        with self.lock:
            leader = self.state.assignment.leader
        return None if leader in ("", self.address) else leader

    def cluster_id(self) -> str | None:
        """The id of the brokers' cluster; None if they do not say."""
        if self._cluster_id is None:
            admin = AdminClient(client_settings(self.environment.raw))
            with contextlib.suppress(KafkaException, TimeoutError):
                self._cluster_id = admin.describe_cluster(request_timeout=10.0).result(10.0).cluster_id
        return self._cluster_id

    def put_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write a record of the configurations; returns when it has come back. Raises ConnectError."""
        self.logs.put("configs", key.encode(), None if value is None else json_text(value).encode())

    def restart_task(self, task: TaskId) -> None:
        """Stop and start one task that runs here."""
        self._restarts.append(task)
        self._wake.set()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        while not self.stopping.is_set():
            self._wake.wait(_TICK_S)
            self._wake.clear()
            try:
                self._tick()
            except ConnectError as failure:
                log.warning("the worker's turn failed; retrying: %s", failure)
            except Exception:
                log.exception("the worker could not look after its tasks; it tries again")

    def _tick(self) -> None:
        self._restart_asked()
        self._look_at_peers()
        if self._brokers.away:  # no broker can name the members or take a record
            pass
        elif self.membership.leading and self.membership.members() is not None:
            if not self._leading or not self.logs.leads:
                self.logs.lead()
            self._leading = True
            self._plan_connectors()
            self._assign()
        elif not self.membership.leading:
            self._leading = False
        self._run_mine()
        self._report_progress()

    def _look_at_peers(self) -> None:
        """The leader looks at all others; they look at the leader, and at each other when it is gone."""
        with self.lock:
            assignment = self.state.assignment
        workers = assignment.workers.keys()
        leader_gone = assignment.leader in self._peers.gone
        watched = set(workers) if self.membership.leading or leader_gone else {assignment.leader}
        self._peers.watch(watched - {self.address, ""})
        self.membership.note_gone(self._peers.gone, assignment.leader, workers)

    # -- as leader ---------------------------------------------------------------------------------------------------

    def _plan_connectors(self) -> None:
        with self.lock:
            connectors = dict(self.state.connectors)
        for name, connector in connectors.items():
            try:
                self._plan(name, connector)
            except Fenced:
                raise
            except ConnectError as failure:  # the others are planned all the same
                log.warning("connector %s: planning its tasks failed: %s", name, self.secrets.clean(str(failure)))
        for name in set(self._plan_failed) - set(connectors):
            del self._plan_failed[name]
        for name in set(self._plans) - set(connectors):
            del self._plans[name]

    def _plan(self, name: str, connector: ConnectorState) -> None:
        if connector.target is Target.STOPPED:
            if connector.tasks or self._state_of(name) != "STOPPED":
                if self._ending(name):
                    return
                for number, task in enumerate(connector.tasks):
                    self._fence(TaskId(name, number), task)
                self._commit_tasks(name, [], -1)
                self._connector_status(name, "STOPPED")
            return
        failed = self._plan_failed.get(name)
        if failed is not None and (failed[0] != connector.revision or time.monotonic() > failed[1]):
            del self._plan_failed[name]
            failed = None
        if connector.planned != connector.revision or name in self._plan_again:
            if failed is None:
                self._start_planning(name, connector)
        elif failed is None:
            state = "PAUSED" if connector.target is Target.PAUSED else "RUNNING"
            if self._state_of(name) != state or self._worker_of(name) != self.address:
                self._connector_status(name, state)

    def _ending(self, name: str) -> bool:
        """Whether tasks of a connector that is stopped may yet end by themselves; those that do not are fenced.

        STOPPED means that positions may be changed, so nothing may be written after it.
        """
        members = self.membership.members() or []
        if any(
            each.get("state") == "RUNNING" and each.get("worker_id") in members
            for each in self.statuses.tasks(name).values()
        ):
            since = self._ending_since.setdefault(name, time.monotonic())
            if time.monotonic() - since <= self.settings.task_shutdown_graceful_timeout_ms / 1000:
                return True
        self._ending_since.pop(name, None)
        return False

    def _start_planning(self, name: str, connector: ConnectorState) -> None:
        going = self._plans.get(name)
        if going is None or going.ended or going.revision != connector.revision or name in self._plan_again:
            self._plan_again.discard(name)
            plan = self._plans[name] = _Plan(connector.revision, time.monotonic())
            in_thread(f"connect plan {name}", lambda: self._planned(name, connector, plan))
        elif time.monotonic() - going.since > _PLANNING_S and self._state_of(name) != "UNASSIGNED":
            sentence = f"it was asked for its tasks {_PLANNING_S:.0f} s ago, and has not answered yet"
            self._connector_status(name, "UNASSIGNED", sentence)

    def _planned(self, name: str, connector: ConnectorState, plan: _Plan) -> None:
        with self.lock:
            stored, before, known = connector.config, connector.tasks, connector.planned == plan.revision
        try:
            tasks = self._tasks_of(name, stored)
            if known and [dict(each) for each in before] == tasks:
                return
            if self._plans.get(name) is not plan:  # it was asked anew, or deleted
                return
            for number, former in enumerate(before):  # its work may be another task's from now on
                if number >= len(tasks) or dict(former) != tasks[number]:
                    self._fence(TaskId(name, number), former)
            with self._committing:
                if self._plans.get(name) is plan:
                    self._commit_tasks(name, tasks, plan.revision)
        except Fenced as fenced:
            log.warning("connector %s is planned by the worker that leads: %s", name, fenced)
        except BaseException as failure:  # also `sys.exit`
            if self._plans.get(name) is not plan:
                return
            log.error("connector %s has no tasks: %s", name, self.secrets.clean(traced(failure)))
            self._plan_failed[name] = (plan.revision, time.monotonic() + _PLAN_AGAIN_S)
            with contextlib.suppress(ConnectError):
                self._connector_status(name, "FAILED", self.secrets.clean(sentence_of(failure)))
        finally:
            plan.ended = True
            self._wake.set()

    def _tasks_of(self, name: str, stored: Mapping[str, str]) -> list[dict[str, str]]:
        config = self.secrets.resolve(stored)
        connector = connector_class(config.get("connector.class"), self.environment.permissions)
        config = with_defaults(connector, config)
        runtime = parsed(runtime_model(connector), config)
        settings = parsed(connector.settings_model, config)
        check_paths(connector, settings, self.environment.permissions)
        self.secrets.remember_passwords(settings)
        for sentence in unknown_settings(connector, stored):
            logging.getLogger(f"{CONNECTOR_LOG}.{name}").warning("setting without effect: %s", sentence)
        context = BasicContext(TaskId(name, -1), self.environment.client("admin", config))
        given = list(connector.tasks(settings, runtime.tasks_max, context))
        if len(given) > runtime.tasks_max:
            raise ConfigError(f"the connector has {len(given)} tasks, and tasks.max allows {runtime.tasks_max}")
        tasks = []
        for each in given:
            extra = {name: str(value) for name, value in each.items()}
            secret = self.secrets.contained_in(extra)
            if secret is not None:
                raise ConnectError(
                    f"the connector puts a secret into the setting {secret} of a task; its author must not"
                )
            tasks.append({**stored, **extra, "task.class": f"{connector.__module__}.{connector.__qualname__}"})
        return tasks

    def _fence(self, task: TaskId, config: Mapping[str, str]) -> None:
        """Make sure that an old task writes nothing further with the configuration it had. Raises Retriable."""
        try:
            kind = kind_of(connector_class(config.get("connector.class"), self.environment.permissions))
        except ConfigError:
            return  # no task of it can run
        if not self.settings.exactly_once or kind != "source":
            return
        transactional_id = f"{self.settings.group_id}-{task.connector}-{task.task}"
        producer = Producer(
            {**TRANSACTIONAL, **client_settings(self.environment.raw), "transactional.id": transactional_id}
        )
        try:
            producer.init_transactions(30.0)
        except KafkaException as failure:
            raise Retriable(f"the former task {task} cannot be fenced: {failure.args[0].str()}") from None

    def _commit_tasks(self, name: str, tasks: list[dict[str, str]], revision: int) -> None:
        for number, task in enumerate(tasks):
            self.put_config(f"{TASK}{name}-{number}", {"properties": task})
        self.put_config(f"{COMMIT}{name}", {"tasks": len(tasks), "ottla.config": revision})
        for number in self.statuses.tasks(name):
            if number >= len(tasks):
                Statuses.put_task(self.logs, TaskId(name, number), None)

    def _assign(self) -> None:
        members = self.membership.members()
        if members is None:
            return
        with self.lock:
            wanted = [TaskId(n, i) for n, each in self.state.connectors.items() for i in range(len(each.tasks))]
            before = self.state.assignment
        workers = share(wanted, members, before)
        if before.leader == self.address and dict(before.workers) == workers:
            return
        new = Assignment(before.generation + 1, self.address, workers)
        self.put_config(ASSIGNMENT, assignment_value(new))

    # -- as a member -------------------------------------------------------------------------------------------------

    def _run_mine(self) -> None:
        if not self.membership.settled:
            if self._left_alone():
                self._stop_tasks(list(self._tasks))
            return
        self._unsettled_since = None
        with self.lock:
            mine = self.state.assignment.workers.get(self.address, frozenset())
            members = set(self.state.assignment.workers)
            known = {task: self._wanted(task) for task in mine}
        wanted = {task: each for task, each in known.items() if each is not None}
        gone = [
            task for task, (running, version) in self._tasks.items() if task not in wanted or wanted[task][1] != version
        ]
        for task in gone:
            if self._is_elsewhere(task):  # it was away, and what this one does now is done twice
                log.warning("task %s went on at another worker while this one was away", task)
                self._tasks[task][0].give_up()
        paused = [task for task, (_, _, target) in wanted.items() if target is Target.PAUSED]
        self._stop_tasks([*gone, *(task for task in paused if task in self._tasks)])
        for task in set(self._waiting_since) - set(wanted):
            del self._waiting_since[task]
        for task in [each for each in self._failed if each not in wanted or self._failed[each] != wanted[each][1]]:
            del self._failed[task]
        for task, (config, version, target) in wanted.items():
            if target is Target.PAUSED:
                self._report_status(task, "PAUSED", None, only_new=True)
            elif task not in self._tasks and task not in self._failed and self._free(task, members):
                self._start(task, config, version)
        self._sweep()

    def _left_alone(self) -> bool:
        """Out of the group for so long that others may have the tasks."""
        if self._unsettled_since is None:
            self._unsettled_since = time.monotonic()
        return time.monotonic() - self._unsettled_since > self.settings.session_timeout_ms / 1000

    def _wanted(self, task: TaskId) -> tuple[Mapping[str, str], object, Target] | None:
        connector = self.state.connectors.get(task.connector)
        if connector is None or task.task >= len(connector.tasks) or connector.target is Target.STOPPED:
            return None
        version = (connector.tasks_revision, self.state.given.get(task))
        return connector.tasks[task.task], version, connector.target

    def _is_elsewhere(self, task: TaskId) -> bool:
        """Whether another worker has reported that it runs a task."""
        status = self.statuses.task(task)
        return status is not None and status.get("state") == "RUNNING" and status.get("worker_id") != self.address

    def _free(self, task: TaskId, members: set[str]) -> bool:
        """Whether the worker that had the task before has let go of it, or is gone."""
        status = self.statuses.task(task)
        if status is None or status.get("state") not in ("RUNNING", "PAUSED"):
            return True
        other = status.get("worker_id")
        if other == self.address or other not in members:
            return True
        since = self._waiting_since.setdefault(task, time.monotonic())
        return time.monotonic() - since > self.settings.rebalance_timeout_ms / 1000

    def _start(self, task: TaskId, config: Mapping[str, str], version: object) -> None:
        self._waiting_since.pop(task, None)
        self._written.pop(task, None)
        try:
            kind = kind_of(connector_class(config.get("connector.class"), self.environment.permissions))
        except ConfigError as failure:
            self._failed[task] = version
            self._report_status(task, "FAILED", str(failure))
            return
        make = SourceTask if kind == "source" else SinkTask
        running = make(task, config, self.environment, self._reported, self.used_topics.note)
        self._tasks[task] = (running, version)
        running.start()

    def _stop_tasks(self, tasks: list[TaskId]) -> None:
        going = [(task, self._tasks.pop(task)[0]) for task in tasks]
        for _, running in going:
            running.stop()
        deadline = time.monotonic() + self.settings.task_shutdown_graceful_timeout_ms / 1000
        for task, running in going:
            if not running.join(max(0.0, deadline - time.monotonic())):
                log.warning("task %s does not stop; it is left to itself, and its transactions are fenced", task)
                running.give_up()
                if not self._is_elsewhere(task):
                    self._report_status(task, "UNASSIGNED", None)
            self._written.pop(task, None)
            with self.lock:
                connector = self.state.connectors.get(task.connector)
            if connector is None or task.task >= len(connector.tasks):
                Statuses.put_task(self.logs, task, None)

    def _sweep(self) -> None:
        """Tasks that have ended by themselves: failed ones wait for a restart, fenced ones begin again if still
        ours.
        """
        for task, (running, version) in list(self._tasks.items()):
            if not running.alive:
                del self._tasks[task]
                status = self.statuses.task(task)
                if running.failed or (status is not None and status.get("state") == "FAILED"):
                    self._failed[task] = version

    def _restart_asked(self) -> None:
        while self._restarts:
            asked = self._restarts.popleft()
            if isinstance(asked, TaskId):
                self._restart(asked)
                continue
            if not asked.only_failed or self._state_of(asked.connector) == "FAILED":
                self._plan_failed.pop(asked.connector, None)
                if self.membership.leading:  # which tasks it has may be another question by now
                    self._plan_again.add(asked.connector)
            if asked.include_tasks:
                for task in [each for each in {*self._tasks, *self._failed} if each.connector == asked.connector]:
                    if not asked.only_failed or task in self._failed:
                        self._restart(task)

    def _restart(self, task: TaskId) -> None:
        if task in self._tasks:
            self._stop_tasks([task])
        self._failed.pop(task, None)

    # -- statuses ----------------------------------------------------------------------------------------------------

    def _state_of(self, name: str) -> str | None:
        status = self.statuses.connector(name)
        return None if status is None else str(status.get("state"))

    def _worker_of(self, name: str) -> str | None:
        status = self.statuses.connector(name)
        return None if status is None else str(status.get("worker_id"))

    def _connector_status(self, name: str, state: str, trace: str | None = None) -> None:
        Statuses.put_connector(
            self.logs,
            name,
            status_value(
                state, self.address, self.state.assignment.generation, trace=trace, version=self._version(name)
            ),
        )

    def _version(self, name: str) -> str | None:
        with self.lock:
            connector = self.state.connectors.get(name)
            config = {} if connector is None else connector.config
        try:
            return version_of(connector_class(config.get("connector.class"), self.environment.permissions))
        except ConfigError:
            return None

    def _reported(self, task: TaskId, state: str, trace: str | None) -> None:
        self._report_status(task, state, trace)
        if state == "FAILED":
            self._wake.set()

    def _report_status(self, task: TaskId, state: str, trace: str | None, *, only_new: bool = False) -> None:
        known = self.statuses.task(task)
        if only_new and known is not None and (known.get("state"), known.get("worker_id")) == (state, self.address):
            return
        running = self._tasks.get(task)
        context = None if running is None else running[0].context
        warning = None if context is None else context.warning
        delivery = None if context is None else context.delivery
        before = None if known is None else known.get("delivery")
        value = status_value(
            state,
            self.address,
            self.state.assignment.generation,
            trace=trace,
            version=self._version(task.connector),
            progress=None if context is None else {what: list(count) for what, count in context.made.items()},
            warning=None if warning is None else self.secrets.clean(warning),
            delivery=before if delivery is None else delivery.reported(before),
        )
        Statuses.put_task(self.logs, task, value)

    def _shown_delivery(self, task: TaskId, delivery: Delivery | None) -> Delivery | None:
        """The delivery that a status is to have now: a busy source delivers many times a second."""
        _, _, shown = self._written.get(task, _NOTHING)
        if shown is None or shown.delivered_at is None:
            return delivery
        return delivery if time.time_ns() // 1_000_000 - shown.delivered_at >= _DELIVERY_EVERY_MS else shown

    def _report_progress(self) -> None:
        if time.monotonic() - self._told_at < _TICK_S:  # a report wakes this thread when it has been read
            return
        self._told_at = time.monotonic()
        for task, (running, _) in list(self._tasks.items()):
            context = running.context
            now = (context.made, context.warning, self._shown_delivery(task, context.delivery))
            status = self.statuses.task(task)
            # a worker that was away reports that of a task it had, although another one runs it by now
            is_hidden = status is not None and status.get("state") == "UNASSIGNED"
            if running.alive and (is_hidden or self._written.get(task, _NOTHING) != now):
                self._written[task] = now
                running.tell_again()
