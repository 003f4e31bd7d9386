"""A real Airflow: `ottla[airflow]` at the locked versions, in an environment of its own that is kept in `.cache/`.

The environment of the tests does without Airflow and its sixty packages: nothing there imports them.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.support.eventually import eventually
from tests.support.genuine import ToolFailedError, locked
from tests.support.probe import free_port
from tests.support.spark_cluster import kill_with_children

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = _REPOSITORY / ".cache" / "airflow"
_DATABASE: Final = "airflow.db"
_LOCK: Final = _REPOSITORY / "requirements" / "constraints.txt"


def airflow_environment() -> Path:
    """The directory of the virtual environment, with an empty database; both are made on first use.

    Several processes may call this at once.

    Raises:
        ToolFailedError: pip could not install Airflow.
    """
    project = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["airflow"]]
    wanted = hashlib.sha256(repr((requirements, _LOCK.read_text(), sys.version)).encode()).hexdigest()
    stamp = _CACHE / "installed"
    with locked(_CACHE.with_name(f"{_CACHE.name}.lock")):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(_CACHE, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(_CACHE)])
            python = str(_CACHE / "bin" / "python")
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "--constraint", str(_LOCK), "uv"])
            _run(
                [
                    python,
                    "-m",
                    "uv",
                    "pip",
                    "install",
                    "--quiet",
                    "--python",
                    python,
                    "--constraint",
                    str(_LOCK),
                    *requirements,
                ]
            )
            packages = sysconfig.get_path("purelib", vars={"base": str(_CACHE)})
            Path(packages, "ottla.pth").write_text(f"{_REPOSITORY / 'src'}\n")
            _run([str(_CACHE / "bin" / "airflow"), "db", "migrate"], {**os.environ, **_database(_CACHE)})
            stamp.write_text(wanted)
    return _CACHE


def _database(home: Path) -> dict[str, str]:
    """The environment of an Airflow whose database is in this directory."""
    return {"AIRFLOW_HOME": str(home), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / _DATABASE}"}


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise ToolFailedError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


class Airflow:
    """One Airflow with its own database and the DAG files of `directory`/dags."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        """`environment` is that of tasks, beside this process's."""
        self.dags = directory / "dags"
        self.dags.mkdir(parents=True)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))},
            **environment,
            **_database(directory / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        }
        made = airflow_environment()
        (directory / "airflow").mkdir()
        shutil.copy(made / _DATABASE, directory / "airflow")
        programs = made / "bin"
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"  # `standalone` starts the others from there
        self._program = str(programs / "airflow")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What `airflow ...` prints. Raises AssertionError unless it ends with `code`."""
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, env=self.environment, timeout=300
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output[-6000:]
        return output

    def command(self, *arguments: str) -> list[str]:
        return [self._program, *arguments]

    @contextmanager
    def serving(self) -> "Iterator[AirflowServer]":
        """Its scheduler, API server and workers, until the block ends."""
        port = free_port()
        settings = {
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        }
        log = self.dags.with_name("airflow.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command("standalone"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, **settings},
                start_new_session=True,
            )
        try:
            server = AirflowServer(port)
            eventually(lambda: process.poll() is not None or server.log_in(), timeout_s=120, interval_s=0.5)
            assert process.poll() is None, log.read_text(errors="replace")[-6000:]
            yield server
        finally:
            kill_with_children(process)


class AirflowServer:
    """The REST API of an Airflow on this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._token = ""

    def log_in(self) -> bool:
        """Whether that worked."""
        try:
            self._token = self._ask("GET", "/auth/token")["access_token"]
        except OSError:
            return False
        return True

    def trigger(self, dag: str) -> str:
        """Run a DAG, once Airflow has found its file; gives the path of the run."""

        def triggered() -> str:
            try:
                run = self._ask("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None})
            except HTTPError as refusal:
                if refusal.code == HTTPStatus.NOT_FOUND:
                    return ""
                raise
            return f"/api/v2/dags/{dag}/dagRuns/{quote(run['dag_run_id'])}"

        return eventually(triggered, timeout_s=60, interval_s=0.5)

    def fail(self, run: str, task: str) -> None:
        """Declare a task failed, as a person does who clicks on it: it is killed if it is running."""
        self._ask("PATCH", f"{run}/taskInstances/{task}", {"new_state": "failed"})

    def log_of(self, run: str, task: str) -> str:
        """The log of the first try of a task."""
        return json.dumps(self._ask("GET", f"{run}/taskInstances/{task}/logs/1"))

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self._url + path, content, headers, method=method), timeout=20) as answer:
            return json.load(answer)
