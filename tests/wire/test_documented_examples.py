"""The examples of the README and of the pages, run as they stand there, against a broker."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tools.docs.markdown import ROOT, blocks

from ottla.testing import Broker

HERE = "127.0.0.1:9092"
SET_UP = ("make install", "ottla serve")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def python_of(name: str, containing: str) -> str:
    """The one Python block of a page with these words."""
    (found,) = [block.text for block in blocks(page(name), "python") if containing in block.text]
    return found


def run_block(code: str, broker: Broker) -> str:
    """What the program prints."""
    return subprocess.run(
        [sys.executable, "-c", code.replace(HERE, broker.bootstrap)], check=True, capture_output=True, text=True
    ).stdout


def run_console(text: str, broker: Broker, place: Path) -> Iterator[tuple[str, str, str]]:
    """Each command of a console block with what the page says that it prints, and what it prints."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OTTLA_BOOTSTRAP": broker.bootstrap,
    }
    for part in ("\n" + text).split("\n$ ")[1:]:
        command, _, shown = part.partition("\n")
        if not command.startswith(SET_UP):
            done = subprocess.run(
                ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (command, done.stderr)
            yield command, shown, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["README.md", "docs/first-records.md"])
def test_the_shell_example_prints_what_the_page_shows(name: str, ottla_broker: Broker, tmp_path: Path) -> None:
    ran = 0
    for block in blocks(page(name), "console"):
        if "topic create" in block.text:
            for command, shown, printed in run_console(block.text, ottla_broker, tmp_path):
                assert printed.startswith(shown), command
                ran += 1
    assert ran == 3


def test_the_python_examples_of_the_readme_and_the_tutorial_run(ottla_broker: Broker, tmp_path: Path) -> None:
    assert run_block(python_of("README.md", "import Consumer, Producer"), ottla_broker) == "b'one pear'\n"
    assert run_block(python_of("docs/first-records.md", "import asyncio"), ottla_broker) == "b'one pear'\n"


def test_the_tutorial_reads_what_the_shell_wrote(ottla_broker: Broker, tmp_path: Path) -> None:
    shell, group = [block.text for block in blocks(page("docs/first-records.md"), "console")][1:]
    list(run_console(shell, ottla_broker, tmp_path))
    printed = run_block(python_of("docs/first-records.md", "import Consumer, Producer"), ottla_broker)
    assert printed == "[b'one pear', b'three figs', b'two plums']\n"
    described = [text for _, _, text in run_console(group, ottla_broker, tmp_path)]
    assert "orders" in described[0]
    assert "kitchen" in described[1]


@pytest.mark.parametrize("name", ["README.md", "docs/first-records.md", "docs/testing.md"])
def test_the_example_of_the_pytest_plugin_passes(name: str, ottla_broker: Broker) -> None:
    names: dict[str, object] = {}
    exec(python_of(name, "def test_orders"), names)
    test = names["test_orders"]
    assert callable(test)
    test(ottla_broker)


@pytest.mark.parametrize("block", [block.text for block in blocks(page("docs/testing.md"), "python")[1:]])
def test_examples_of_the_page_about_testing_run(block: str) -> None:
    exec(compile(block, "docs/testing.md", "exec"), {})


def test_the_exactly_once_example_writes_each_order_once(ottla_broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    for number in range(10):
        producer.produce("orders", key=str(number), value=f"pear {number}")
    assert producer.flush(10) == 0
    code = python_of("docs/exactly-once.md", "init_transactions").replace(HERE, ottla_broker.bootstrap)
    settings = {"bootstrap.servers": ottla_broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    meals = Consumer({**settings, "isolation.level": "read_committed", "allow.auto.create.topics": True})
    meals.subscribe(["meals"])
    program = subprocess.Popen([sys.executable, "-c", code])
    try:
        found: list[bytes | None] = []
        while len(found) < 10:
            found += [record.value() for record in meals.consume(10, timeout=1) if record.error() is None]
        assert sorted(value for value in found if value is not None) == sorted(
            f"PEAR {number}".encode() for number in range(10)
        )
    finally:
        program.terminate()
        program.wait(10)
        meals.close()
