"""A real Airflow: `ottla[airflow]` at the locked versions, in an environment of its own that is kept in `.cache/`.

The environment of the tests does without Airflow and its sixty packages: nothing there imports them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.genuine import ToolFailedError, locked

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = _REPOSITORY / ".cache" / "airflow"
_LOCK: Final = _REPOSITORY / "requirements" / "constraints.txt"


def airflow_environment() -> Path:
    """The directory of the virtual environment, made by pip on first use; several processes may call this at once.

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
            pip = [str(_CACHE / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, "--constraint", str(_LOCK), *requirements])
            packages = sysconfig.get_path("purelib", vars={"base": str(_CACHE)})
            Path(packages, "ottla.pth").write_text(f"{_REPOSITORY / 'src'}\n")
            stamp.write_text(wanted)
    return _CACHE


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
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
            "AIRFLOW_HOME": str(directory / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        }
        self._program = str(airflow_environment() / "bin" / "airflow")
        self("db", "migrate")

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
