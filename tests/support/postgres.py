"""A PostgreSQL server of its own for a test: in a directory that is thrown away, on a free port of 127.0.0.1."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
import psycopg2

from tests.support.database_files import copied
from tests.support.eventually import eventually
from tests.support.probe import free_port
from tests.support.requirements import require

USER: Final = "tests"
_START_TIMEOUT_S: Final = 60


class Postgres:
    """Runs as long as the block; `url` is SQLAlchemy's. The server refuses to run as root: then it is `nobody`'s.

    settings: of its configuration, such as `wal_level="logical"`.
    """

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self._programs = Path(require("postgres")).resolve().parent
        self.directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.port = free_port()
        self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        if self._as_user:
            shutil.chown(self.directory, "nobody", "nogroup")
        try:
            self._fill()
            self._start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        return self

    def _fill(self) -> None:
        copied(f"postgres-{self._programs.parent.name}", self.directory / "data", self._install)

    def _install(self) -> None:
        self._run("initdb", "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")

    def crash(self) -> None:
        """End every process of the server at once, and start it again: it recovers from its WAL."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        self._start()

    def kill(self) -> None:
        """SIGKILL every process of the server, and start it again: it recovers from its WAL."""
        self.die()
        self._start()

    def die(self) -> None:
        """SIGKILL every process of the server."""
        leader = self._leader()
        processes = [leader, *leader.children(recursive=True)]
        for each in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(processes)

    def cpu_seconds(self) -> float:
        """User and system time used so far by the server's processes, those that have ended too."""
        server = self._leader()
        own = server.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for process in server.children():
            times = process.cpu_times()
            total += times.user + times.system
        return float(total)

    def _is_running(self) -> bool:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            return bool(self._leader().is_running())
        return False

    def _leader(self) -> psutil.Process:
        return psutil.Process(int((self.directory / "data" / "postmaster.pid").read_text().split()[0]))

    def _start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        options += "".join(f" -c {name}={value}" for name, value in self.settings.items())
        log = f"{self.directory}/log"
        self._run("pg_ctl", "-w", "-t", str(_START_TIMEOUT_S), "-l", log, "-o", options, "start")

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            if self._is_running():
                self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), "-D", f"{self.directory}/data", *arguments]
        # not captured by pipes: the server would hold them open
        with (self.directory / f"{program}.out").open("w+") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.directory, check=False
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"


class Standby(Postgres):
    """A physical standby, made by pg_basebackup and following as long as the block runs, until it is promoted."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__(**primary.settings)
        self._primary = primary

    def _install(self) -> None:
        primary = f"host=127.0.0.1 port={self._primary.port} user={USER}"
        self._run("pg_basebackup", "-d", primary, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def _fill(self) -> None:
        self._install()

    def take_slot(self, name: str) -> None:
        """Copy a slot of the primary as it is now, before PostgreSQL 17 does so by itself. Begins anew."""
        self._ask_primary("CHECKPOINT")  # writes slots
        self._run("pg_ctl", "-w", "-m", "fast", "stop")
        there, here = (each.directory / "data/pg_replslot" / name for each in (self._primary, self))
        subprocess.run(["cp", "-a", str(there), str(here)], check=True)
        self._start()

    def stop_following(self) -> None:
        """Stop replication from the primary; replicated rows stay."""
        self.run("postgres", "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        eventually(lambda: not self.ask("SELECT count(*) FROM pg_stat_wal_receiver"), timeout_s=60)

    def move_to(self, port: int) -> None:
        """Listen there from now on."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")
        self.port = port
        self._start()

    def promote(self) -> None:
        """Have it be a primary, on a timeline of its own."""
        assert self.ask("SELECT pg_promote(true, 60)")

    def ask(self, query: str) -> Any:
        """The only value of a query's answer."""
        with closing(self.connect("postgres")) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]

    def run(self, database: str, *statements: str) -> None:
        """Statements, each a transaction."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)

    def connect(self, database: str) -> Any:
        """A session in autocommit."""
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user=USER, dbname=database)
        connection.autocommit = True
        return connection

    def _ask_primary(self, statement: str) -> None:
        primary = psycopg2.connect(host="127.0.0.1", port=self._primary.port, user=USER, dbname="postgres")
        primary.autocommit = True
        with closing(primary), primary.cursor() as cursor:
            cursor.execute(statement)
