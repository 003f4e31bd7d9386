"""Producers that end while the brokers have yet to answer."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.connect.runtime.chain import Encoded
from ottla.connect.runtime.source_task import TransactionalWriter
from ottla.testing import Broker
from tests.support.fenced_writers import writer

_REPOSITORY = Path(__file__).parents[2]


def test_closing_a_writer_that_was_fenced_while_it_wrote_does_not_end_the_process() -> None:
    with Broker() as broker:
        command = [sys.executable, "-m", "tests.support.fenced_writers", broker.bootstrap]
        run = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr[-2000:]  # -6: librdkafka freed the same memory twice


def test_a_writer_that_is_fenced_says_so_when_it_sends() -> None:
    with Broker() as broker:
        former, latter = writer(broker.bootstrap, "c"), writer(broker.bootstrap, "c")
        former.open()
        former.send(Encoded("c", b"", b"before", [], None, None))
        latter.open()
        with pytest.raises(KafkaException) as raised:
            send_until_refused(former)
        assert raised.value.args[0].code() == KafkaError._FENCED  # a task that tried again would fence its successor
        former.close()
        latter.close()


def send_until_refused(fenced: TransactionalWriter) -> None:
    for _ in range(200):  # few enough that the client is not polled, which would report it, too
        fenced.send(Encoded("c", b"", b"afterwards", [], None, None))
        time.sleep(0.05)
