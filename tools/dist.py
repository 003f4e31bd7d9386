"""Builds the wheel and the sdist, and tries both as a user would: `python -m tools.dist` (`make dist`).

Each is installed into an empty environment, away from the checkout. Then a broker is started from it, and records are
produced and consumed.
"""

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla import __version__
from tools.docs.markdown import ROOT

DIST: Final = ROOT / "dist"
LOCK: Final = ROOT / "requirements" / "constraints.txt"
READY_S: Final = 30.0
RECORDS: Final = "alice:one pear\nbob:two plums\n"
IN_WHEEL: Final = ("ottla/py.typed", "ottla/broker.py", "pyspark_ottla/__init__.py")
IN_SDIST: Final = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "src/ottla/records/_native.c",
    "src/ottla/spark/_columns.c",
    "hatch_build.py",
)


class DistributionError(Exception):
    """A distribution lacks something, or does not work."""


def main() -> None:
    """Build, look inside, install, try. Exits with 1 and one sentence if a distribution is not good."""
    try:
        for distribution in build():
            inspect(distribution)
            with tempfile.TemporaryDirectory(prefix="ottla-dist-") as place:
                attempt(distribution, Path(place))
            print(f"{distribution.name}: installed into an empty environment; serve, produce and consume work")
    except DistributionError as problem:
        sys.exit(f"{problem}")


def build() -> list[Path]:
    """The sdist, and the wheel made from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], cwd=ROOT)
    return [*DIST.glob("*.tar.gz"), *DIST.glob("*.whl")]


def inspect(distribution: Path) -> None:
    """Raises DistributionError if the version or a file is missing."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as wheel:
            names, wanted = set(wheel.namelist()), {*IN_WHEEL, f"ottla-{__version__}.dist-info/licenses/LICENSE"}
    else:
        with tarfile.open(distribution) as sdist:
            names = set(sdist.getnames())
        wanted = {f"ottla-{__version__}/{name}" for name in IN_SDIST}
    if missing := sorted(wanted - names):
        raise DistributionError(f"{distribution.name} lacks {', '.join(missing)}")


def attempt(distribution: Path, place: Path) -> None:
    """Install it below `place` and use it there."""
    environment = place / "environment"
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    work = place / "work"
    work.mkdir()
    install = [str(programs / "pip"), "install", "--quiet", "--constraint", str(LOCK), str(distribution)]
    _run(install, cwd=work)
    where = _run([str(programs / "python"), "-c", "import ottla; print(ottla.__file__)"], cwd=work).strip()
    if not where.startswith(str(environment)):
        raise DistributionError(f"{distribution.name}: ottla was imported from {where}, not from the new environment")
    ottla = str(programs / "ottla")
    _expect(distribution, _run([ottla, "--version"], cwd=work), f"ottla {__version__}\n")
    with _broker(ottla, work) as bootstrap:
        there = {"OTTLA_BOOTSTRAP": bootstrap}
        _run([ottla, "topic", "create", "orders"], cwd=work, environment=there)
        _run([ottla, "produce", "orders", "--key-separator", ":"], cwd=work, environment=there, given=RECORDS)
        consume = [ottla, "consume", "orders", "--from-beginning", "--keys", "--separator", ":", "--exit-at-end"]
        _expect(distribution, _run(consume, cwd=work, environment=there), RECORDS)


@contextmanager
def _broker(ottla: str, work: Path) -> Iterator[str]:
    """A broker of the new installation; its address once it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        ottla,
        "serve",
        "--override",
        f"listeners=PLAINTEXT://{address}",
        "--override",
        f"log.dirs={work / 'data'}",
    ]
    log = work / "broker.log"
    with log.open("w") as output:
        broker = subprocess.Popen(command, cwd=work, env=_clean_environment(), stdout=output, stderr=output)
    try:
        _wait_until_open(address, broker, log)
        yield address
    finally:
        broker.terminate()
        status = broker.wait(READY_S)
    if status:
        raise DistributionError(f"the broker ended with exit code {status}: {log.read_text()}")


def _wait_until_open(address: str, broker: "subprocess.Popen[bytes]", log: Path) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + READY_S
    while broker.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise DistributionError(f"the broker does not answer at {address} after {READY_S:.0f} s: {log.read_text()}")


def _expect(distribution: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise DistributionError(f"{distribution.name} printed {found!r} instead of {wanted!r}")


def _run(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None, given: str | None = None
) -> str:
    """What the command prints. Raises DistributionError with its errors if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**_clean_environment(), **(environment or {})},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DistributionError(
            f"{' '.join(command)} failed with exit code {done.returncode}: {done.stderr}{done.stdout}"
        )
    return done.stdout


def _clean_environment() -> dict[str, str]:
    """Without what would lead a new environment back to this one."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OTTLA", "VIRTUAL_ENV"))
    }


if __name__ == "__main__":
    main()
