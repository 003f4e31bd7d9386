"""What tasks of sources and sinks have in common: a thread, a context, retries, and telling how it goes."""

import abc
import logging
import random
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connector_config import RuntimeSettings, parsed, runtime_model, with_defaults
from ottla.connect.errors import ConnectError, Fenced, Retriable
from ottla.connect.logs import Logs
from ottla.connect.plugins import ConnectorClass, connector_class
from ottla.connect.positions import Positions
from ottla.connect.secrets import Secrets
from ottla.connect.state import TaskId
from ottla.connect.worker_settings import WorkerSettings, client_settings

CONNECTOR_LOG: Final = "ottla.connect.connector"
_FIRST_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker lends its tasks. raw: the worker's settings as given, with those of clients."""

    settings: WorkerSettings
    raw: Mapping[str, str]
    converters: Mapping[str, str]
    logs: Logs
    positions: Positions
    secrets: Secrets

    def client(self, kind: str, config: Mapping[str, str]) -> dict[str, Any]:
        """Settings for a client of a connector: the worker's, then those of the connector with `KIND.override.`."""
        prefix = f"{kind}.override."
        own = {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
        return {**client_settings(self.raw, kind), **own}


Report = Callable[[TaskId, str, str | None], None]
"""Called with the task, its new state and, if there is one, the trace: a sentence, and where it came from."""


class BasicContext:
    """The part of a context that sources and sinks share; also that of `tasks` and `check`."""

    def __init__(self, task: TaskId, client: Mapping[str, Any]) -> None:
        self.connector, self.task = task
        self.client: Mapping[str, Any] = client
        self.log = logging.getLogger(f"{CONNECTOR_LOG}.{task.connector}")
        self.stopped = threading.Event()
        self.made: dict[str, tuple[int, int | None]] = {}
        """What was told by `progress`."""
        self.warning: str | None = None

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
            self.log.warning("%s", sentence)
        self.warning = sentence


class Task(abc.ABC):
    """One task of a connector in a thread of its own."""

    _said_its_last = False

    def __init__(self, task: TaskId, config: Mapping[str, str], around: Surroundings, report: Report) -> None:
        """`config` is the task's configuration as stored: with placeholders."""
        self.id = task
        self._stored, self._around, self._report = dict(config), around, report
        self.context: BasicContext = BasicContext(task, {})
        self._thread = threading.Thread(target=self._main, name=f"connect task {task}", daemon=True)
        self._telling = threading.Lock()
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
        """Leave one that does not end to itself: it says nothing any more, and commits nothing.

        What it has done since is not lost: whoever has its work next does it again.
        """
        with self._telling:
            self._said_its_last = True

    def tell_again(self) -> None:
        """Report once more that it runs, if it does: what its context tells has changed."""
        self._say("RUNNING")

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _main(self) -> None:
        context = self.context
        try:
            config = self._around.secrets.resolve(self._stored)
            connector = connector_class(config.get("connector.class"))
            config = with_defaults(connector, config)
            context.client = self._around.client("admin", config)
            self._around.secrets.remember_passwords(parsed(connector.settings_model, config))
            runtime: RuntimeSettings = parsed(runtime_model(connector), config)
            self._say("RUNNING")
            self._keep_running(connector, config, runtime)
        except Fenced as fenced:
            context.log.warning("task %s ends: %s", self.id, fenced)
            return  # the status is the other one's to write
        except BaseException as failure:  # also `sys.exit`, and the panics of libraries in Rust
            trace = self._around.secrets.clean(trace_of(failure))
            context.log.error("task %s failed: %s", self.id, trace)
            self.failed = True
            self._say("FAILED", trace, last=True)
            return
        self._say("UNASSIGNED", last=True)

    def _say(self, state: str, trace: str | None = None, *, last: bool = False) -> None:
        """Report, unless the last word has been said: what comes after that is another task's to say."""
        with self._telling:
            if not self._said_its_last:
                self._said_its_last = last
                self._report(self.id, state, trace)

    def _check_not_given_up(self) -> None:
        """Before something is committed. Raises Fenced."""
        if self._said_its_last:
            raise Fenced("it did not end when it was told to, and others may do its work by now")

    def _keep_running(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self.context.stopping:
            before = self.progress_mark()
            try:
                self._attempt(connector, config, runtime)
                return
            except Retriable as trouble:
                if self.progress_mark() != before:
                    pause_s = _FIRST_PAUSE_S
                sentence = self._around.secrets.clean(str(trouble))
                self.context.warn(f"{sentence} (trying again)")
                self.restarts += 1
                self.context.sleep(max(pause_s * random.uniform(0.8, 1.2), trouble.after_s))
                pause_s = min(pause_s * 2, runtime.errors_retry_delay_max_ms / 1000)

    @abc.abstractmethod
    def _attempt(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        """Run until it is to stop. Raises Retriable to be called again."""

    @abc.abstractmethod
    def progress_mark(self) -> object:
        """Something that changes whenever work was done: pauses between attempts begin short again then."""


def trace_of(failure: BaseException) -> str:
    """What stands in a status: the sentence first, and for what nobody foresaw where it came from."""
    if isinstance(failure, ConnectError):
        return str(failure)
    sentence = f"{type(failure).__name__}: {failure}"
    return f"{sentence}\n{''.join(traceback.format_exception(failure))}"
