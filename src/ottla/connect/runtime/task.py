"""What tasks of sources and sinks have in common: a thread, a context, retries, and telling how it goes."""

import abc
import logging
import random
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.clients.identities import Identities
from ottla.connect.errors import ConnectError, Fenced, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.permissions import Permissions
from ottla.connect.runtime.brokers import Brokers
from ottla.connect.runtime.connector_config import RuntimeSettings, parsed, runtime_model, with_defaults
from ottla.connect.runtime.figures import TaskFigures
from ottla.connect.runtime.logs import Logs
from ottla.connect.runtime.plugins import ConnectorClass, check_paths, connector_class
from ottla.connect.runtime.positions import Positions
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.worker_settings import (
    WorkerSettings,
    own_settings,
    with_overrides,
)
from ottla.connect.targets import Targets
from ottla.tracing import Tracer

CONNECTOR_LOG: Final = "ottla.connect.connector"
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_SENTENCE: Final = 2_000
"""Characters of a sentence in a status: messages of databases may have whole statements."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The worker's context for its tasks. raw: the worker's settings as given, with those of clients."""

    settings: WorkerSettings
    raw: Mapping[str, str]
    converters: Mapping[str, str]
    logs: Logs
    positions: Positions
    secrets: Secrets
    permissions: Permissions
    brokers: Brokers
    identities: Identities = field(default_factory=Identities)
    tracer: Tracer | None = None

    def client(self, kind: str, config: Mapping[str, str]) -> dict[str, Any]:
        """Settings for a client of a connector: the worker's, then the connector's with `KIND.override.`.

        Raises ConfigError for one that a connector may not set.
        """
        prefix = f"{kind}.override."
        given = {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
        self.permissions.check_client(prefix, given)
        own = own_settings(config, prefix)
        self.secrets.remember_named(given)
        kept = {name: given[name] for name in _FOR_TASKS if name in given}
        return {**with_overrides(self.raw, kind, own), **kept}


_FOR_TASKS: Final = ("max.poll.records",)
"""Settings of Java's clients that tasks carry out themselves."""
Report = Callable[[TaskId, str, str | None], None]
"""Called with the task, its new state and, if it failed, why: the `trace` of Kafka Connect, here a sentence."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The last change that a source's task has delivered, in milliseconds since 1970.

    started_at: of the task. delivered_at: of the transaction, or flush, that made it durable; changed_at: of the change
    itself (`Source.changed_at`). Both are None while the task has delivered nothing.
    """

    started_at: int
    delivered_at: int | None = None
    changed_at: int | None = None

    def reported(self, before: Mapping[str, Any] | None) -> dict[str, int | None]:
        """For the status. `before`: what the task's status had; a task that has delivered nothing yet keeps it."""
        if self.delivered_at is None and before is not None and before.get("delivered_at") is not None:
            return {**before, "started_at": self.started_at}
        return {"started_at": self.started_at, "delivered_at": self.delivered_at, "changed_at": self.changed_at}


class BasicContext:
    """The part of a context that sources and sinks share; also that of `tasks` and `check`."""

    def __init__(self, task: TaskId, client: Mapping[str, Any], targets: Targets | None = None) -> None:
        self.connector, self.task = task
        self.client: Mapping[str, Any] = client
        self.targets = targets or Targets("")
        self.log = logging.getLogger(f"{CONNECTOR_LOG}.{task.connector}")
        self.stopped = threading.Event()
        self.made: dict[str, tuple[int, int | None]] = {}
        """The reports by `progress`."""
        self.warning: str | None = None
        self.delivery: Delivery | None = None
        """The last one of a source's task."""

    @property
    def stopping(self) -> bool:
        """Whether the task is to end soon."""
        return self.stopped.is_set()

    def sleep(self, seconds: float) -> bool:
        """Wait, or less if the task is to stop."""
        return self.stopped.wait(seconds)

    def progress(self, what: str, done: int, total: int | None = None) -> None:
        """Remember how far something has come; the worker writes it into the status."""
        self.made = {**self.made, what: (done, total)}

    def warn(self, sentence: str | None) -> None:
        """Remember a sentence for the status."""
        if sentence is not None and sentence != self.warning:
            self.log.warning("task continues with a warning: %s", sentence)
        self.warning = sentence


class Task(abc.ABC):
    """One task of a connector in a thread of its own."""

    _said_its_last = False

    def __init__(self, task: TaskId, config: Mapping[str, str], environment: WorkerEnvironment, report: Report) -> None:
        """`config` is the task's configuration as stored: with placeholders."""
        self.id = task
        self._stored, self._environment, self._report = dict(config), environment, report
        self.context: BasicContext = BasicContext(task, {})
        self._thread = threading.Thread(target=self._main, name=f"connect task {task}", daemon=True)
        self._telling = threading.Lock()
        self.figures = TaskFigures()
        self.failed = False
        self.restarts = 0
        """How many times it has begun again after something retriable."""

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; returns at once."""
        self.context.stopped.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. Returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def give_up(self) -> None:
        """Abandon a task that does not end: it no longer reports or commits anything.

        Its work since then is not lost: its successor repeats it.
        """
        with self._telling:
            self._said_its_last = True

    def tell_again(self) -> None:
        """Report once more that it runs, if it does: its context has changed."""
        self._say("RUNNING")

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _main(self) -> None:
        context = self.context
        try:
            config = self._environment.secrets.resolve(self._stored)
            connector = connector_class(config.get("connector.class"), self._environment.permissions)
            config = with_defaults(connector, config)
            context.client = self._environment.client("admin", config)
            context.targets = self._environment.permissions.targets
            settings = parsed(connector.settings_model, config)
            self._environment.secrets.remember_passwords(settings)
            self._environment.secrets.remember_named(config)
            check_paths(connector, settings, self._environment.permissions)
            runtime: RuntimeSettings = parsed(runtime_model(connector), config)
            self._say("RUNNING")
            self._keep_running(connector, config, runtime)
        except Fenced as fenced:
            context.log.warning("task %s ends: %s", self.id, fenced)
            return  # the status is the other one's to write
        except:  # noqa: E722 - also `sys.exit`, panics of libraries in Rust, and the client library's bare KafkaError
            raised: object = sys.exc_info()[1]
            failure = raised if isinstance(raised, BaseException) else ConnectError(f"the client library: {raised}")
            clean = self._environment.secrets.clean
            context.log.error("task %s failed: %s", self.id, clean(traced(failure)))
            self.failed = True
            self._say("FAILED", clean(sentence_of(failure)), last=True)
            return
        self._say("UNASSIGNED", last=True)

    def _say(self, state: str, trace: str | None = None, *, last: bool = False) -> None:
        """Report, unless the last report was sent: later ones are up to another task."""
        with self._telling:
            if not self._said_its_last:
                self._said_its_last = last
                self._report(self.id, state, trace)

    def _check_not_given_up(self) -> None:
        """Before something is committed. Raises Fenced."""
        if self._said_its_last:
            raise Fenced("it did not stop in time, and another worker may run it by now")

    def _keep_running(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self.context.stopping:
            if self._environment.brokers.wait(self.context.stopped):
                return
            before = self.progress_mark()
            try:
                self._attempt(connector, config, runtime)
                return
            except Retriable as trouble:
                if self.progress_mark() != before:
                    pause_s = _FIRST_PAUSE_S
                sentence = self._environment.secrets.clean(str(trouble))
                self.context.warn(f"{sentence} (trying again)")
                self.restarts += 1
                self.figures.errors.retries += 1
                self.context.sleep(max(pause_s * random.uniform(0.8, 1.2), trouble.after_s))
                pause_s = min(pause_s * 2, runtime.errors_retry_delay_max_ms / 1000)

    @abc.abstractmethod
    def _attempt(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        """Run until it is to stop. Raises Retriable to be called again."""

    @abc.abstractmethod
    def progress_mark(self) -> object:
        """Something that changes whenever work was done: pauses between attempts begin short again then."""


def sentence_of(failure: BaseException) -> str:
    """A failure in one line, for a status. An unexpected one is its type and message, without where it came from."""
    try:
        message = str(failure)
    except Exception:  # of a plugin's own class
        message = ""
    if not isinstance(failure, ConnectError):
        kind = type(failure).__name__
        message = f"{kind}: {message}" if message else kind
        message = f"{message} (unexpected: the worker's log has where it came from)"
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_SENTENCE else f"{line[:_LONGEST_SENTENCE]}..."


def traced(failure: BaseException) -> str:
    """A failure for the log: an unexpected one with its traceback."""
    if isinstance(failure, ConnectError):
        return str(failure)
    try:
        stack = traceback.format_exception(failure)
    except Exception:  # the client library chains an exception to an object that is none
        stack = traceback.format_tb(failure.__traceback__)
    return f"{sentence_of(failure)}\n{''.join(stack)}"
