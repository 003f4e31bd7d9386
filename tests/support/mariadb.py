"""A MariaDB server of its own for a test: in a directory that is thrown away, on a free port of 127.0.0.1."""

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final

import pymysql

from tests.support.database_files import copied
from tests.support.eventually import eventually
from tests.support.probe import free_port
from tests.support.requirements import require

USER: Final = "tests"
PASSWORD: Final = "tests"
_STOP_TIMEOUT_S: Final = 30


class MariaDb:
    """Runs as long as the block, with row events in its binlog and a database `shop`; `url` is SQLAlchemy's.

    The server refuses to run as root: then it is `nobody`'s.
    """

    kind: ClassVar[str] = "mariadb"

    def __init__(self, **settings: str) -> None:
        self._program = self._find_program()
        self._directory = Path(tempfile.mkdtemp(prefix="mariadb-"))
        self._user = "nobody" if os.getuid() == 0 else ""
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"mysql+pymysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/shop"

    def __enter__(self) -> "MariaDb":
        if self._user:
            shutil.chown(self._directory, self._user, "nogroup")
        try:
            self._install()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self._directory / "server.out").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(self._program),
                    "--no-defaults",
                    *self._common(),
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--socket={self._directory}/socket",
                    f"--pid-file={self._directory}/pid",
                    f"--init-file={self._directory}/init.sql",
                    "--log-bin=binlog",
                    "--binlog-format=ROW",
                    "--server-id=1",
                    "--character-set-server=utf8mb4",
                    "--innodb-flush-log-at-trx-commit=0",
                    *(f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()),
                ],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self._directory,
            )
        eventually(self._answers)

    def kill(self) -> None:
        """As a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def lose_binlog(self, file: str, pos: int) -> None:
        """What a crash of the machine does without sync_binlog=1, while the server is down."""
        os.truncate(self._directory / "data" / file, pos)

    def connect(self, database: str = "shop") -> "pymysql.connections.Connection[pymysql.cursors.Cursor]":
        """A connection in autocommit."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=database, autocommit=True
        )

    def _find_program(self) -> Path:
        return Path(require("mariadbd")).resolve()

    def _write_init(self) -> None:
        init = self._directory / "init.sql"
        init.write_text(
            "CREATE DATABASE IF NOT EXISTS shop;\n"
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        init.chmod(0o644)

    def _install(self) -> None:
        self._write_init()
        version = subprocess.run([self._program, "--version"], capture_output=True, check=True).stdout
        copied(f"mariadb-{sha256(version).hexdigest()[:12]}", self._directory / "data", self._make_data)

    def _make_data(self) -> None:
        done = subprocess.run(
            [
                require("mariadb-install-db"),
                "--no-defaults",
                *self._common(),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=8M",
            ],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self._directory,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def _common(self) -> list[str]:
        user = [f"--user={self._user}"] if self._user else []
        return [f"--datadir={self._directory}/data", *user]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "server.out").read_text()
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _remove(self) -> None:
        try:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait(_STOP_TIMEOUT_S)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
