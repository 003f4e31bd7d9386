"""The examples of docs/connect.md, run as they stand there."""

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.cli.app import run
from ottla.testing import Broker, ConnectWorker
from tests.support.connect import values_of
from tests.support.eventually import eventually

TEXT = (Path(__file__).parents[2] / "docs" / "connect.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for code in PYTHON:
        if (named := re.match(r'"""(\w+\.py):', code)) is not None:
            (tmp_path / named[1]).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for module in ("lines", "totals"):
        sys.modules.pop(module, None)


def test_the_tutorial_is_thirty_lines() -> None:
    lines = [line for line in PYTHON[0].splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_tutorial_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "notes.toml").write_text(TOML[0])
    with Broker() as broker, ConnectWorker(broker.bootstrap) as worker:
        apply = ["connect", "apply", "notes.toml", "--url", worker.url]
        assert run(apply) == 1
        assert "notes.txt does not exist; create it" in capsys.readouterr().err
        notes = place / "notes.txt"
        notes.write_text("one\ntwo\nthr")
        assert run(["connect", "restart", "notes", "--url", worker.url]) == 0
        assert eventually(lambda: values_of(broker.bootstrap, "notes", 2)) == [b"one", b"two"]
        with notes.open("a") as file:
            file.write("ee\n")
        assert eventually(lambda: values_of(broker.bootstrap, "notes", 3))[2:] == [b"three"]
        assert run(apply) == 0
        assert capsys.readouterr().out == "notes\tunchanged\tRUNNING\n"
        assert run(["connect", "plugins", "lines.Lines", "--url", worker.url]) == 0
        assert "The file to follow." in capsys.readouterr().out

        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")):
            producer.produce("amounts", value, key)
        producer.flush(20)
        config = {
            "connector.class": "totals.Totals",
            "topics": "amounts",
            "database": str(place / "totals.db"),
            "key.converter": "StringConverter",
        }
        worker.put("totals", config)
        eventually(lambda: totals(place / "totals.db") == [("a", 4), ("b", 2)])
        assert run(["connect", "list", "--url", worker.url]) == 0
        listed = capsys.readouterr().out.splitlines()
        assert [line.split("\t")[:4] for line in listed] == [
            ["notes", "source", "lines.Lines", "RUNNING"],
            ["totals", "sink", "totals.Totals", "RUNNING"],
        ]


def totals(database: Path) -> list[tuple[str, int]]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute("select * from totals order by key").fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []
    finally:
        connection.close()


def test_a_worker_finds_the_connectors_beside_which_it_was_started(place: Path) -> None:
    (place / "notes.toml").write_text(TOML[0])
    (place / "notes.txt").write_text("one\n")
    (place / "worker.properties").write_text("listeners=http://127.0.0.1:0\nlistners=no\nplugin.path=.\n")
    ottla = [str(Path(sys.executable).with_name("ottla")), "connect", "serve", "--config", "worker.properties"]
    with Broker() as broker:
        command = [*ottla, "--bootstrap", broker.bootstrap, "notes.toml"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
            try:
                assert eventually(lambda: values_of(broker.bootstrap, "notes", 1)) == [b"one"]
            finally:
                serving.send_signal(signal.SIGINT)
                _, said = serving.communicate(timeout=60)
    assert serving.returncode == 130
    assert "the worker's setting listners is unknown, and left alone; did you mean listeners?" in said
