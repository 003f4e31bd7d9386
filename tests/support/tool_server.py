"""Kafka's tools in one virtual machine for all tests of a pytest process: a run costs a tenth of a tool of its own.

`kafka_tool` here is `genuine.kafka_tool` for tools that ask a broker or read files, and end.
"""

import atexit
import base64
import os
import selectors
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from tests.support import genuine
from tests.support.genuine import ToolFailedError, kafka_tool_command, tool_class
from tests.support.java_sources import compiled

_SOURCE: Final = Path(__file__).with_name("ToolServer.java")


class _ToolServer:
    """One virtual machine (`ToolServer.java`), which runs one tool at a time."""

    def __init__(self) -> None:
        classes = compiled(_SOURCE)
        command = kafka_tool_command("ToolServer")
        path = command.index("-cp") + 1
        command[path] = f"{command[path]}:{classes}"  # behind Kafka's jars, which the archive of classes begins with
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        atexit.register(self.close)

    def run(self, words: list[str], stdin: str, timeout_s: float) -> tuple[int, str, str] | None:
        """Exit status, standard output and standard error of a class and its arguments; None if it has not ended."""
        line = " ".join(map(_encoded, (words[0], stdin, *words[1:]))) + "\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        answer = self._line(time.monotonic() + timeout_s)
        if answer is None:
            return None
        status, output, errors = answer.split(" ")
        return int(status), _decoded(output), _decoded(errors)

    def _line(self, deadline: float) -> str | None:
        """The next line of output; None at the deadline, or when the virtual machine has ended."""
        assert self._process.stdout is not None
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not pieces or not pieces[-1].endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return None
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
                if not piece:
                    return None
                pieces.append(piece)
        return b"".join(pieces).decode("ascii").rstrip("\n")

    def close(self) -> None:
        """End it, whatever it does."""
        atexit.unregister(self.close)
        self._process.kill()
        self._process.communicate()


class _Shared:
    """The server of this process, started when it is first needed, and again after a run that did not end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._server: _ToolServer | None = None

    def run(self, words: list[str], stdin: str, timeout_s: float) -> tuple[int, str, str] | None:
        """As `_ToolServer.run`, under `lock`."""
        server = self._server or _ToolServer()
        self._server = None
        done = server.run(words, stdin, timeout_s)
        if done is None:
            server.close()
        else:
            self._server = server
        return done


_shared: Final = _Shared()


def kafka_tool(
    class_name: str, *args: str, stdin: str | None = None, timeout_s: float = 60.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a genuine Kafka tool to its end and return what it wrote.

    Raises:
        ToolFailedError: it ended with an error (unless `check` is off) or did not end within `timeout_s`.
    """
    if not _shared.lock.acquire(blocking=False):  # another thread's tool runs: this one has a process of its own
        return genuine.kafka_tool(class_name, *args, stdin=stdin, timeout_s=timeout_s, check=check)
    try:
        done = _shared.run([tool_class(class_name), *args], stdin or "", timeout_s)
    finally:
        _shared.lock.release()
    if done is None:
        raise ToolFailedError(f"{class_name} {' '.join(args)} did not end within {timeout_s:.0f} s")
    status, output, errors = done
    if check and status != 0:
        raise ToolFailedError(f"{class_name} {' '.join(args)} ended with exit code {status}\n{output}\n{errors}")
    return subprocess.CompletedProcess([class_name, *args], status, output, errors)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _decoded(word: str) -> str:
    return base64.b64decode(word).decode()
