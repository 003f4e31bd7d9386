"""Workers as processes: asked, watched, killed, frozen and replaced; what they say goes into the history."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TextIO

from tests.chaos.history import Line, encode
from tests.chaos.plan import Place, Task, first_task
from tests.support.freezing import freeze
from tests.support.java_sources import compiled, java_command

_HERE: Final = Path(__file__).parent
TASK_S: Final = 60.0
"""A worker that has not answered by then is killed."""


class Recorder:
    """Writes the history as it happens; used by many threads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self.lines: list[Line] = []

    def note(self, who: str, **more: object) -> None:
        """A fault, or something else that people want to read."""
        self.write({"who": who, "state": "note", **more})

    def write(self, line: Line) -> None:
        """One line, as of now."""
        with self._lock:
            stamped = {"at": round(time.monotonic() - self._began, 4), **line}
            self.lines.append(stamped)
            self._file.write(encode(stamped) + "\n")
            self._file.flush()


def java_classes() -> Path:
    """The Java worker, compiled when it is first needed."""
    return compiled(_HERE / "java" / "ChaosWorker.java")


class WorkerProcess:
    """One process. `ask` is for one thread, the rest for any."""

    def __init__(self, client: str, settings: Mapping[str, Any], errors: Path) -> None:
        self._client = client
        text = json.dumps(settings)
        if client == "java":
            command = java_command(java_classes(), "ChaosWorker", text)
        else:
            command = [sys.executable, "-m", "tests.chaos.python_worker", text]
        with errors.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=_HERE.parents[1],
                start_new_session=True,  # a Ctrl-C on the terminal is for the one who runs all this
            )
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._answers.put(line)
        self._answers.put(None)

    def ask(self, task: Task, timeout_s: float = TASK_S) -> Line | None:
        """Its answer; None when the process has ended, was frozen, or takes too long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=timeout_s)
        except (BrokenPipeError, Empty):
            return None
        return None if answer is None else dict(json.loads(answer))

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP; nothing waits for its answer any longer."""
        if self._process.poll() is None:
            freeze(self._process.pid)
        self._answers.put(None)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def say_where(self) -> None:
        """Have a Python worker write to its complaints which call it does not come back from."""
        if self._client == "python":
            self._signal(signal.SIGUSR1)
            time.sleep(0.2)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def end(self) -> None:
        """Make sure that it is gone."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # what it was told last was never read
            self._process.stdin.close()


class Post:
    """One place of the plan, with a thread that gives its tasks to whichever process is there."""

    def __init__(
        self,
        place: Place,
        keys: list[str],
        tasks: Iterator[Task],
        settings: Mapping[str, Any],
        recorder: Recorder,
        directory: Path,
    ) -> None:
        self.place = place
        self._keys = keys
        self._tasks = tasks
        self._settings = settings
        self._recorder = recorder
        self._errors = directory / f"{place.name}.stderr"
        self._stopping = threading.Event()
        self._giving_up = False
        self._count = 0
        self._process: WorkerProcess | None = None
        self._frozen: list[WorkerProcess] = []
        self._strike: tuple[str, float] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=place.name)
        self.has_succeeded = False
        """Whether anything it was asked for was done, after it chose what to read."""
        self.failures: list[str] = []
        """Processes that ended without having been killed."""

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """No more tasks after the present one."""
        self._stopping.set()

    def give_up(self) -> None:
        """Stop, and kill the process whatever it does."""
        self._giving_up = True
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    def join(self) -> None:
        """Wait until the present task is done, and end all processes."""
        self._thread.join()
        for process in (self._process, *self._frozen):
            if process is not None:
                process.end()

    def strike(self, how: str, delay_seconds: float) -> None:
        """`kill` or `freeze` the process when it is so far into its next transaction."""
        with self._lock:
            self._strike = how, delay_seconds

    def thaw(self) -> None:
        """Wake up those that were frozen, to do what they can: their place is taken."""
        for process in list(self._frozen):
            process.thaw()

    def bury(self) -> None:
        """Kill those that were frozen: awake and without a task, they would stay members of their groups."""
        for process in list(self._frozen):
            process.kill()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._process is None:
                self._count += 1
                self._process = WorkerProcess(self.place.client, self._settings, self._errors)
                task = first_task(self.place, self._keys)
                if task is not None:
                    self._do(task)
            else:
                self._do(next(self._tasks))

    def _do(self, task: Task) -> None:
        who, process = f"{self.place.name}.{self._count}", self._process
        assert process is not None
        struck = self._struck(task)
        timer: threading.Timer | None = None
        if struck is not None:
            how, delay = struck
            timer = threading.Timer(delay, process.kill if how == "kill" else process.freeze)
            timer.start()
        self._recorder.write({"who": who, "state": "invoke", **task})
        answer = process.ask(task)
        if timer is not None:
            timer.cancel()
            timer.join()
            if answer is not None:  # it was quicker; kill it all the same, between two transactions
                (process.kill if struck and struck[0] == "kill" else process.freeze)()
        if answer is not None:
            self._recorder.write({"who": who, **answer})
            self.has_succeeded |= answer["state"] == "ok" and task["what"] not in ("assign", "subscribe")
        else:
            end = "silent" if struck is None else {"kill": "killed", "freeze": "frozen"}[struck[0]]
            self._recorder.write({"who": who, "state": "info", "what": task["what"], "error": end})
            if struck is None and not self._giving_up:
                process.say_where()
                self.failures.append(f"{who} ended or fell silent by itself; see {self._errors}")
        if answer is not None and struck is None and not answer.get("has_ended"):
            return
        if struck is not None and struck[0] == "freeze":
            self._frozen.append(process)
        else:
            process.end()
        self._process = None

    def _struck(self, task: Task) -> tuple[str, float] | None:
        if task["what"] not in ("txn", "relay", "send"):
            return None
        with self._lock:
            struck, self._strike = self._strike, None
        return struck
