"""The example of docs/simulated-consumer.md, run as it stands there, and what it relies on."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tools.docs.markdown import ROOT, blocks

from ottla.testing.simulation import Cluster, NotReachedError

CARELESS_SEED = 5
"""It finds the careless consumer. As other code changes, it may no longer: then another one of the first forty does."""
COURSE = """
import json
from zlib import crc32
from ottla.testing.simulation import Cluster
from ottla.testing.simulation.network import SimNetwork
from test_kitchen import scenario

async def traced(cluster):
    course, send = [], SimNetwork.send
    def noted(self, sender, data):
        course.append((round(self.loop.time(), 9), sender.host, sender.peer_host, len(data or b"")))
        send(self, sender, data)
    SimNetwork.send = noted
    await scenario(cluster)
    return course

course = Cluster(2).run(traced)
print(len(course), crc32(json.dumps(course).encode()))
"""
"""Prints each message's time, sender and receiver. Contents differ: aiokafka's timestamps are the machine's."""
PAGE = (ROOT / "docs" / "simulated-consumer.md").read_text(encoding="utf-8")


def write_example(place: Path, *, careless: bool = False) -> None:
    consumer, test = (block.text for block in blocks(PAGE, "python"))
    if careless:
        assert "if place not in seen:" in consumer
        consumer = consumer.replace("if place not in seen:", "if True:")
        test = test.replace("range(3)", f"[{CARELESS_SEED}, *range(40)]")
    (place / "kitchen.py").write_text(consumer)
    (place / "test_kitchen.py").write_text(test)


def run_python(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "0", "PATH": "/bin"},
    )


def run_example(place: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return run_python(place, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options)


def test_the_example_passes(tmp_path: Path) -> None:
    write_example(tmp_path)
    done = run_example(tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_finds_a_consumer_that_counts_twice(tmp_path: Path) -> None:
    write_example(tmp_path, careless=True)
    done = run_example(tmp_path, "-x")
    assert "NotReachedError: seed" in done.stdout, done.stdout + done.stderr


def test_a_seed_says_everything_of_a_client_too(tmp_path: Path) -> None:
    """In each process, objects lie at other addresses, by which asyncio's futures have their places in sets."""
    write_example(tmp_path)
    first, again = (run_python(tmp_path, "-c", COURSE) for _ in range(2))
    assert first.stdout == again.stdout != "", first.stderr + again.stderr


async def pass_time(cluster: Cluster) -> list[tuple[float, str, str]]:
    await cluster.create_topic("t")
    await cluster.trouble(seconds=5)
    await cluster.healed()
    return cluster.happened


def test_a_seed_decides_the_faults() -> None:
    first, again, other = (Cluster(seed).run(pass_time) for seed in (5, 5, 6))
    assert first == again != other
    assert first


def test_what_is_not_reached_names_seed_and_faults() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.brokers[0].kill()
        await cluster.until(lambda: False, within_seconds=1, what="pigs fly")

    with pytest.raises(NotReachedError, match=r"seed 3: not reached within 1 s, at .*: pigs fly"):
        Cluster(3).run(scenario)


def test_a_program_that_fails_fails_the_scenario() -> None:
    async def program() -> None:
        await asyncio.sleep(0.1)
        raise LookupError("no such order")

    async def scenario(cluster: Cluster) -> None:
        cluster.start("shop", program())
        await cluster.until(lambda: False)

    with pytest.raises(LookupError, match="no such order"):
        Cluster(3).run(scenario)


def test_a_killed_program_runs_no_line_more() -> None:
    async def program(lines: list[str]) -> None:
        try:
            await asyncio.sleep(1)
        finally:
            lines.append("finally")

    async def scenario(cluster: Cluster) -> list[str]:
        lines: list[str] = []
        process = cluster.start("shop", program(lines))
        await asyncio.sleep(0.1)
        process.kill()
        await asyncio.sleep(2)
        return lines

    assert Cluster(3).run(scenario) == []
