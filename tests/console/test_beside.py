"""`ottla serve --console`: the console beside a broker, for as long as the broker is there."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually


@contextmanager
def served(directory: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A broker with its console: the process of the broker, and the address of the console."""
    log = directory / "stderr"
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--console-port", "0"]
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")}
    overrides = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
    with log.open("wb") as output, subprocess.Popen([*command, *overrides], stderr=output) as process:
        try:
            found = eventually(lambda: re.search(r"The console is at (http://\S+/)", log.read_text()))
            yield process, found[1]
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.soak
def test_it_ends_with_the_broker(tmp_path: Path) -> None:
    with served(tmp_path) as (process, url):
        assert answers(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not answers(url)


def test_it_does_not_outlive_a_broker_that_is_killed(tmp_path: Path) -> None:
    with served(tmp_path) as (process, url):
        assert answers(url)
        process.kill()
        assert eventually(lambda: not answers(url))
