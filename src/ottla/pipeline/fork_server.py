"""One warm Python from which all of Spark's Python processes on this machine are forked.

For each kind of thing that Spark needs Python for (find a data source, plan a read, follow a stream's offsets, run
tasks, commit) it starts another process, and each imports PySpark, Arrow and pandas: seven to start one query that
reads and writes topics. The server imports them once, while the JVM is starting. The program that Spark starts in
Python's place is a small script, the launcher. It hands its arguments, environment and standard streams to the
server, which forks, and stands for the child until that ends. If there is no server, it becomes the real Python.

    JVM ── starts ──▶ launcher ── arguments, environment, descriptors 0 to 2 ──▶ server ── forks ──▶ child
                         ◀────────────── process id, then exit code ──────────────┘

Linux only (an abstract socket, pidfds); local masters only: executors on other machines have their own Python.
"""

import array
import contextlib
import gc
import io
import json
import os
import runpy
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

ADDRESS: Final = "OTTLA_FORK_SERVER"
"""The environment variable with the server's address."""

_PRELOADED: Final = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.analyze_udtf",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "ottla.spark",
    "pyspark_ottla",
)
_CREDENTIALS: Final = struct.Struct("3i")
_LENGTH: Final = struct.Struct("!I")
_DESCRIPTORS: Final = 3

_LAUNCHER: Final = """\
#!{python} -IS
import sys
REAL = {python!r}
def become_python():
    import os
    os.execv(REAL, [REAL, *sys.argv[1:]])
try:
    import _signal, _socket, array, json, os, struct
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect("\\0" + os.environ[{variable!r}])
    peer = struct.unpack("3i", server.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12))
    if peer[1] != os.getuid():  # another process took the address after the server had ended
        become_python()
    if sys.argv[1:2] != ["-m"]:
        become_python()
    request = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()
    streams = array.array("i", [0, 1, 2])
    server.sendmsg([struct.pack("!I", len(request))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    while request:
        request = request[server.send(request):]
    child = struct.unpack("!I", server.recv(4))[0]
except Exception:
    become_python()
_signal.signal(_signal.SIGTERM, lambda number, frame: os.kill(child, number))
ended = server.recv(4)
os._exit(struct.unpack("!I", ended)[0] if ended else 1)
"""


# -- for the process that starts Spark ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handle:
    """A server that is starting or runs, and the script to be named to Spark as its Python."""

    process: "subprocess.Popen[bytes]"
    launcher: Path

    def stop(self) -> None:
        """End the server. Its children live for as long as the JVM wants them to."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def start(directory: Path) -> Handle | None:
    """Begin to start a server; it ends with this process at the latest.

    None where that cannot be done. Sets the environment variable by which launchers find it.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    if " " in sys.executable or len(sys.executable) > 100:  # more than a script's first line can hold
        return None
    launcher = (directory / "python").absolute()
    launcher.write_text(_LAUNCHER.format(python=sys.executable, variable=ADDRESS), encoding="utf-8")
    launcher.chmod(0o700)
    address = f"ottla-{secrets.token_hex(12)}"
    # as Spark has it for its workers: the same order in every one, and one thread for each
    environment = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "OMP_NUM_THREADS": "1"}
    # it listens from now on, so that launchers wait for the server to be warm
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + address)
    listener.listen(128)
    with listener, (directory / "fork_server.err").open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            pass_fds=(listener.fileno(),),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    os.environ[ADDRESS] = address
    return Handle(server, launcher)


# -- the server ------------------------------------------------------------------------------------


class Server:
    """Forks a child per request, and notifies the launcher when it has ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Until standard input ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data is None:
                    return
                else:
                    self._on_event(key)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if not _is_of_this_user(connection):
            connection.close()
            return
        try:
            arguments, environment, directory, streams = _receive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        try:
            process = os.fork()
        except OSError:  # too many processes: the launcher becomes a Python of its own, or fails by itself
            for each in streams:
                os.close(each)
            connection.close()
            return
        if process == 0:
            self._selector.close()
            self._listener.close()
            connection.close()
            _run(arguments, environment, directory, streams)
        for each in streams:
            os.close(each)
        handle = os.pidfd_open(process)
        with contextlib.suppress(OSError):
            connection.sendall(_LENGTH.pack(process))
        child = (process, handle, connection)
        self._selector.register(handle, selectors.EVENT_READ, child)
        self._selector.register(connection, selectors.EVENT_READ, child)

    def _on_event(self, key: selectors.SelectorKey) -> None:
        process, handle, connection = key.data
        if key.fileobj is connection:  # the launcher was killed: so shall be what it stands for
            self._selector.unregister(connection)
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            return
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(OSError):
            connection.sendall(_LENGTH.pack(abs(os.waitstatus_to_exitcode(status))))
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        self._selector.unregister(handle)
        os.close(handle)
        connection.close()


def _is_of_this_user(connection: socket.socket) -> bool:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(found)[1]
    return user == os.getuid()


def _receive(connection: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]]:
    """Arguments, environment, directory and descriptors of what is to run. Raises OSError or ValueError."""
    room = socket.CMSG_LEN(_DESCRIPTORS * array.array("i").itemsize)
    head, extra, _, _ = connection.recvmsg(_LENGTH.size, room)
    streams = array.array("i")
    for level, kind, content in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(content[: len(content) - len(content) % streams.itemsize])
    if len(head) < _LENGTH.size or len(streams) != _DESCRIPTORS:
        raise ValueError("this is no request")
    left = _LENGTH.unpack(head)[0]
    parts = []
    while left:
        part = connection.recv(min(left, 1 << 16))
        if not part:
            raise ValueError("the request ends too early")
        parts.append(part)
        left -= len(part)
    arguments, environment, directory = json.loads(b"".join(parts))
    return arguments, environment, directory, list(streams)


def _run(arguments: list[str], environment: dict[str, str], directory: str, streams: list[int]) -> NoReturn:
    """In the child: be a new Python that runs the module, then end."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        for output in (sys.stdout, sys.stderr):
            if isinstance(output, io.TextIOWrapper):
                output.reconfigure(line_buffering=True)  # children of the child do not flush when they end
        given = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
        sys.path[:] = list(dict.fromkeys([directory, *given, *sys.path]))
        _seed()
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for output in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                output.flush()
        os._exit(code & 0xFF)


def _seed() -> None:
    """No two children throw the same dice."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def main() -> None:
    """Warm up, then serve every client of the socket with the descriptor in the first argument."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in Spark's own: Ctrl-C is for the starting process
    for module in _PRELOADED:
        with contextlib.suppress(ImportError):
            import_module(module)
    # run as a program by children, which is worth a warning to Python if it is known as a module, too
    warnings.filterwarnings("ignore", message=".*found in sys.modules.*", category=RuntimeWarning)
    gc.collect()
    gc.freeze()  # what is here stays where it is, shared by all children
    Server(listener).serve()


if __name__ == "__main__":
    main()
