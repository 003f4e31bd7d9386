"""A PostgreSQL server of its own for a test: in a directory that is thrown away, on a free port of 127.0.0.1."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from tests.support.probe import free_port
from tests.support.requirements import require

USER: Final = "tests"
_START_TIMEOUT_S: Final = 60


class Postgres:
    """Runs as long as the block; `url` is SQLAlchemy's. The server refuses to run as root: then it is `nobody`'s.

    settings: of its configuration, such as `wal_level="logical"`.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = settings
        self._programs = Path(require("postgres")).resolve().parent
        self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.port = free_port()
        self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> "Postgres":
        if self._as_user:
            shutil.chown(self._directory, "nobody", "nogroup")
        try:
            self._run("initdb", "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
            self._start()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def crash(self) -> None:
        """End every process of the server at once, and start it again: it recovers from its WAL."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        self._start()

    def cpu_seconds(self) -> float:
        """User and system time used so far by the server's processes, those that have ended too."""
        server = psutil.Process(int((self._directory / "data" / "postmaster.pid").read_text().split()[0]))
        own = server.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for process in server.children():
            times = process.cpu_times()
            total += times.user + times.system
        return float(total)

    def _start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        options += "".join(f" -c {name}={value}" for name, value in self._settings.items())
        log = f"{self._directory}/log"
        self._run("pg_ctl", "-w", "-t", str(_START_TIMEOUT_S), "-l", log, "-o", options, "start")

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), "-D", f"{self._directory}/data", *arguments]
        # not captured by pipes: the server would hold them open
        with (self._directory / f"{program}.out").open("w+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self._directory, check=False
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"
