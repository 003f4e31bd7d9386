"""A PostgreSQL server of the demo's own, from the programs of this machine."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect.demo.errors import DemoError
from ottla.processes import ChildProcess, owned_by
from ottla.waiting import tries

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection  # noqa: N812 - a class

USER: Final = "demo"
_SETTINGS: Final = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
_READY_WITHIN_S: Final = 60.0
_PLACES: Final = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin")
"""Where packages put servers that are not on PATH: Debian's, Homebrew's."""


def find_programs() -> Path:
    """The directory of `postgres` and `initdb`: that of PATH, else the newest there is. Raises DemoError."""
    on_path = shutil.which("postgres")
    found = [] if on_path is None else [Path(on_path).resolve().parent]
    root = Path("/")
    found += sorted((each for place in _PLACES for each in root.glob(place[1:])), key=_version, reverse=True)
    for directory in found:
        if all((directory / program).exists() for program in ("postgres", "initdb")):
            return directory
    raise DemoError(
        "The demo runs a PostgreSQL server of its own, and there is none on this machine. "
        "Install one (Debian: apt-get install postgresql; macOS: brew install postgresql)."
    )


def _version(directory: Path) -> int:
    found = re.search(r"\d+", directory.parent.name)
    return int(found[0]) if found else 0


class Postgres(ChildProcess):
    """The server, with its data below `directory`. It refuses to run as root, and runs as the user nobody then."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": it does not wait for its clients

    def __init__(self, programs: Path, directory: Path, port: int) -> None:
        self._programs, self._directory, self.port = programs, directory, port
        self._owner = "nobody" if os.getuid() == 0 else None
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        data = str(directory / "data")
        command = [str(programs / "postgres"), "-D", data, "-p", str(port), *settings]
        super().__init__("PostgreSQL", command, directory / "postgres.log", user=self._owner)

    def create(self) -> None:
        """Make its files. Raises DemoError."""
        self._directory.mkdir(parents=True)
        if self._owner is not None:
            shutil.chown(self._directory, self._owner)
        command = [str(self._programs / "initdb"), "-D", str(self._directory / "data"), "-U", USER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._directory,
            **owned_by(self._owner),
        )
        if made.returncode != 0:
            raise DemoError(f"initdb cannot make a database in {self._directory}:\n{made.stderr.strip()}")

    def wait_until_ready(self) -> None:
        """Started again right after a kill, it may find the last process of the former server, and is started anew.

        Raises DemoError.
        """
        import psycopg2

        for _ in tries(_READY_WITHIN_S, every_s=0.1):
            try:
                self.connect("postgres").close()
            except psycopg2.OperationalError:
                if self.ended:
                    self.start()
            else:
                return
        raise DemoError(f"PostgreSQL does not answer; the end of {self.log}:\n{self.last_words()}")

    def connect(self, database: str) -> "Connection":
        """A connection. Raises psycopg2.OperationalError."""
        import psycopg2

        return psycopg2.connect(host="127.0.0.1", port=self.port, user=USER, dbname=database, connect_timeout=10)

    def kill(self) -> None:
        """SIGKILL to the server and to each of its processes, which are in groups of their own."""
        processes = [] if self.ended else self._processes()
        super().kill()
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def _processes(self) -> list[int]:
        import psycopg2

        try:
            return [pid for (pid,) in self.rows("postgres", "SELECT pid FROM pg_stat_activity")]
        except psycopg2.Error:  # it does not answer: its processes end by themselves when they find it gone
            return []

    def execute(self, database: str, statements: str) -> None:
        """Run statements, all in one transaction. Raises psycopg2.Error."""
        with self._connected(database) as connection, connection.cursor() as cursor:
            cursor.execute(statements)

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises psycopg2.Error."""
        with self._connected(database) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    @contextlib.contextmanager
    def _connected(self, database: str) -> "Iterator[Connection]":
        connection = self.connect(database)
        try:
            connection.autocommit = True
            yield connection
        finally:
            connection.close()
