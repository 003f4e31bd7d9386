"""One worker: reads what is configured, and executes what its herder decides.

Its thread sends the herder a turn whenever something has changed, and once a second (`herder/state_machine.py`): as
leader to plan connectors and to assign tasks, as member to start and stop those that are assigned to it. What is asked
over REST becomes records (`operations.py`), and takes effect when they come back.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.connect.converters.json_converter import json_text
from ottla.connect.errors import ConfigError, ConnectError, Fenced
from ottla.connect.herder.events import (
    AskForTasks,
    AssignTurn,
    CommitTasks,
    Config,
    ConfigRead,
    FenceTasks,
    ForgetTask,
    GiveUpTask,
    HerderConfig,
    HerderEffect,
    HerderEvent,
    LeadershipTaken,
    LeadTurn,
    Plan,
    PlanEnded,
    PlanTurn,
    RemoveTasks,
    ReportConnector,
    ReportTask,
    RunTurn,
    StartTask,
    StopTasks,
    TakeLeadership,
    TaskEnded,
    TaskNotStarted,
    TaskReported,
    TaskRestartRequested,
    TasksAnswered,
    TasksCommitted,
    TasksFenced,
    TasksRemoved,
    TasksStopped,
    WorkerStopped,
    WriteAssignment,
)
from ottla.connect.herder.state import ASSIGNMENT, COMMIT, LOGGER, TASK, TaskId, assignment_value
from ottla.connect.herder.state_machine import Herder
from ottla.connect.permissions import Permissions
from ottla.connect.runtime import loggers
from ottla.connect.runtime.brokers import Brokers
from ottla.connect.runtime.logs import logs_of
from ottla.connect.runtime.membership import membership_of
from ottla.connect.runtime.peers import Peers
from ottla.connect.runtime.planned_tasks import fence, tasks_of
from ottla.connect.runtime.plugins import connector_class, kind_of
from ottla.connect.runtime.positions import Positions
from ottla.connect.runtime.reports import Reports
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_task import SinkTask
from ottla.connect.runtime.source_task import SourceTask
from ottla.connect.runtime.statuses import Statuses
from ottla.connect.runtime.task import Task, WorkerEnvironment, sentence_of, traced
from ottla.connect.runtime.threads import in_thread
from ottla.connect.runtime.traces import tracer_of
from ottla.connect.runtime.used_topics import UsedTopics
from ottla.connect.runtime.worker_settings import client_settings, worker_settings

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0


class Worker:
    """Starts and stops with `start` and `stop`.

    settings: a worker's, by Kafka Connect's names, with those of the clients. address: `host:port` of its REST API, its
    identity for the others. Raises ConfigError.
    """

    def __init__(self, settings: Mapping[str, str], address: str) -> None:
        secrets = Secrets()
        raw = secrets.resolve(settings)
        secrets.limit(raw)
        secrets.remember_named(raw)
        permissions = Permissions(raw)
        brokers = Brokers(str(client_settings(raw)["bootstrap.servers"]))
        own = worker_settings(raw)
        self.address, self.statuses = address, Statuses()
        grace_ms = own.task_shutdown_graceful_timeout_ms
        config = HerderConfig(address, own.session_timeout_ms, own.rebalance_timeout_ms, grace_ms)
        self._herder = Herder(config, self.statuses)
        self.state = self._herder.state
        self.lock = threading.RLock()
        """Held while the herder decides, and while `state` is read; never while something is waited for."""
        converters = {
            **raw,
            "key.converter": own.key_converter,
            "value.converter": own.value_converter,
            "header.converter": own.header_converter,
        }
        logs = logs_of(own, raw, self._on_record)
        tracer = tracer_of(own.tracing_endpoint, address)
        self.environment = WorkerEnvironment(
            own, raw, converters, logs, Positions(), secrets, permissions, brokers, tracer=tracer
        )
        self.membership = membership_of(own, raw, address, self.changed)
        self._peers = Peers(self.changed)
        self._reports = Reports(
            address, self.statuses, self.environment, lambda: self.state.assignment, self._config_of
        )
        self.used_topics = UsedTopics(logs, self.statuses, is_tracking=own.topic_tracking_enable)
        self._tasks: dict[TaskId, Task] = {}
        self._committing = threading.Lock()
        """Serializes the commits of connectors' tasks."""
        self._cluster_id: str | None = None
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
        self.environment.logs.start()
        self.membership.start()
        self._thread.start()
        self.environment.brokers.start()
        if not self.environment.settings.standalone:
            self._peers.start()
        self.ready.set()

    def stop(self) -> None:
        """Stop the tasks, leave the group."""
        self.stopping.set()
        self._wake.set()
        with ExitStack() as steps:  # each is made, though one before it fails: brokers may be away
            steps.callback(self.environment.logs.close)
            steps.callback(self.membership.stop)
            if self._thread.ident is not None:
                self._thread.join()
            self._peers.stop()
            self.environment.brokers.stop()
            if self.environment.tracer is not None:
                steps.callback(self.environment.tracer.close)
            self._send(WorkerStopped())

    def changed(self) -> None:
        """Look at everything soon."""
        self._wake.set()

    # -- state -------------------------------------------------------------------------------------------------------

    def leader(self) -> str | None:
        """The address of the worker that may write configurations; None: none may now, or it is not known which."""
        if not self.membership.settled:
            return None
        if self.membership.leading:
            return self.address if self.environment.logs.leads else None
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

    @property
    def lives(self) -> bool:
        """Whether its thread looks after connectors and tasks; one that is to stop may have ended."""
        return self._thread.is_alive() or self.stopping.is_set() or not self.ready.is_set()

    def running(self) -> dict[TaskId, Task]:
        """The tasks that run here now."""
        return dict(self._tasks)

    def put_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Write a record of the configurations; returns when it has come back. Raises ConnectError."""
        self.environment.logs.put("configs", key.encode(), None if value is None else json_text(value).encode())

    def restart_task(self, task: TaskId) -> None:
        """Stop and start one task that runs here."""
        self._send(TaskRestartRequested(task))
        self._wake.set()

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
        self._send(ConfigRead(text, parsed_value, offset, self.ready.is_set()))
        self._wake.set()

    def _config_of(self, name: str) -> Config:
        with self.lock:
            connector = self.state.connectors.get(name)
            return {} if connector is None else connector.config

    # -- the thread --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        while not self.stopping.is_set():
            self._wake.wait(_TICK_S)
            self._wake.clear()
            try:
                self._turn()
            except ConnectError as failure:
                log.warning("the worker's turn failed; retrying: %s", failure)
            except Exception:
                log.exception("the worker could not look after its tasks; it tries again")

    def _turn(self) -> None:
        gone = self._peers.gone
        with self.lock:
            assignment = self.state.assignment
            watched = self._herder.watched(gone, is_leader=self.membership.leading)
        self._peers.watch(watched)
        self.membership.note_gone(gone, assignment.leader, assignment.workers.keys())
        if not self.environment.brokers.away and self.membership.leading:  # else none can name the members
            self._lead()
        self._send(RunTurn(self.membership.settled, self.membership.leading))
        for task, running in list(self._tasks.items()):
            if not running.alive:
                del self._tasks[task]
                self._send(TaskEnded(task, running.failed))
        self._reports.progress(self._tasks)

    def _lead(self) -> None:
        members = self.membership.members()
        if members is None:
            return
        self._send(LeadTurn(self.environment.logs.leads))
        with self.lock:
            connectors = list(self.state.connectors)
        for name in connectors:
            try:
                self._send(PlanTurn(name, members))
            except Fenced:
                raise
            except ConnectError as failure:  # the others are planned all the same
                reason = self.environment.secrets.clean(str(failure))
                log.warning("connector %s: planning its tasks failed: %s", name, reason)
        members = self.membership.members()
        if members is not None:
            self._send(AssignTurn(members))

    # -- effects -----------------------------------------------------------------------------------------------------

    def _decide(self, event: HerderEvent) -> list[HerderEffect]:
        with self.lock:
            return self._herder.handle(event, time.monotonic_ns() // 1_000_000)

    def _send(self, event: HerderEvent) -> None:
        """Let the herder decide, and execute its effects in this thread. Raises ConnectError."""
        with ExitStack() as steps:  # each is executed, though one before it fails
            for effect in reversed(self._decide(event)):
                steps.callback(self._execute, effect)

    def _execute(self, effect: HerderEffect) -> None:
        match effect:
            case TakeLeadership():
                self.environment.logs.lead()
                self._send(LeadershipTaken())
            case AskForTasks(plan, config):
                in_thread(f"connect plan {plan.connector}", lambda: self._plan(plan, config))
            case FenceTasks(tasks):
                self._fence(tasks)
            case CommitTasks(connector, configs, revision):
                self._commit(connector, configs, revision)
                self._send(TasksCommitted(connector, len(configs)))
            case RemoveTasks(connector, tasks):
                self._fence(tasks)
                self._commit(connector, (), -1)
                self._send(TasksRemoved(connector))
            case WriteAssignment(assignment):
                self.put_config(ASSIGNMENT, assignment_value(assignment))
            case StartTask(task, config):
                self._start(task, config)
            case GiveUpTask(task):
                log.warning("task %s went on at another worker while this one was away", task)
                self._tasks[task].give_up()
            case StopTasks(ids):
                self._stop(ids)
            case ReportConnector(connector, state, failed):
                self._reports.connector(connector, state, failed)
            case ReportTask(task, state, failed):
                running = self._tasks.get(task)
                self._reports.task(task, state, failed, None if running is None else running.context)
            case ForgetTask(task):
                self._reports.forget(task)

    def _fence(self, tasks: Mapping[TaskId, Config]) -> None:
        for task, config in tasks.items():
            fence(task, config, self.environment)

    def _commit(self, connector: str, tasks: Sequence[Config], revision: int) -> None:
        for number, each in enumerate(tasks):
            self.put_config(f"{TASK}{connector}-{number}", {"properties": each})
        self.put_config(f"{COMMIT}{connector}", {"tasks": len(tasks), "ottla.config": revision})

    def _plan(self, plan: Plan, config: Config) -> None:
        failed: BaseException | None = None
        try:
            self._send(TasksAnswered(plan, tasks_of(plan.connector, config, self.environment)))
            with self._committing:
                self._send(TasksFenced(plan))
        except Fenced as fenced:
            log.warning("connector %s is planned by the worker that leads: %s", plan.connector, fenced)
        except BaseException as failure:  # also `sys.exit`
            failed = failure
        clean = self.environment.secrets.clean
        effects = self._decide(PlanEnded(plan, None if failed is None else clean(sentence_of(failed))))
        if failed is not None and effects:  # else it was asked anew
            log.error("connector %s has no tasks: %s", plan.connector, clean(traced(failed)))
        with contextlib.suppress(ConnectError):
            for effect in effects:
                self._execute(effect)
        self._wake.set()

    def _start(self, task: TaskId, config: Config) -> None:
        self._reports.run_over(task)
        try:
            kind = kind_of(connector_class(config.get("connector.class"), self.environment.permissions))
        except ConfigError as failure:
            self._send(TaskNotStarted(task, str(failure)))
            return
        make = SourceTask if kind == "source" else SinkTask
        running = self._tasks[task] = make(task, config, self.environment, self._reported, self.used_topics.note)
        running.start()

    def _stop(self, tasks: Sequence[TaskId]) -> None:
        going = {task: self._tasks.pop(task) for task in tasks}
        for running in going.values():
            running.stop()
        abandoned = []
        deadline = time.monotonic() + self.environment.settings.task_shutdown_graceful_timeout_ms / 1000
        for task, running in going.items():
            if not running.join(max(0.0, deadline - time.monotonic())):
                log.warning("task %s does not stop; it is left to itself, and its transactions are fenced", task)
                running.give_up()
                abandoned.append(task)
            self._reports.run_over(task)
        self._send(TasksStopped(tasks, abandoned))

    def _reported(self, task: TaskId, state: str, failure: str | None) -> None:
        self._send(TaskReported(task, state, failure))
        if state == "FAILED":
            self._wake.set()
