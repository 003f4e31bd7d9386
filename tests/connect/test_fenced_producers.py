"""Producers that end while the brokers have yet to answer."""

import subprocess
import sys
from pathlib import Path

from ottla.testing import Broker

_REPOSITORY = Path(__file__).parents[2]


def test_closing_a_writer_that_was_fenced_while_it_wrote_does_not_end_the_process() -> None:
    with Broker() as broker:
        command = [sys.executable, "-m", "tests.support.fenced_writers", broker.bootstrap]
        run = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr[-2000:]  # -6: librdkafka freed the same memory twice
