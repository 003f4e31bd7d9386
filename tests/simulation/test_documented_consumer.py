"""The example of docs/simulated-consumer.md, run as it stands there, and what it relies on."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tools.docs.markdown import ROOT, blocks

from ottla.testing.simulation import Cluster, NotReachedError

CARELESS_SEEDS = 40
"""About every third one finds the careless consumer, and the first that does is the last to run."""
PAGE = (ROOT / "docs" / "simulated-consumer.md").read_text(encoding="utf-8")


def write_example(place: Path, *, careless: bool = False) -> None:
    consumer, test = (block.text for block in blocks(PAGE, "python"))
    if careless:
        assert "if place not in seen:" in consumer
        consumer = consumer.replace("if place not in seen:", "if True:")
        test = test.replace("range(3)", f"range({CARELESS_SEEDS})")
    (place / "kitchen.py").write_text(consumer)
    (place / "test_kitchen.py").write_text(test)


def run_example(place: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env={"PYTHONHASHSEED": "0", "PATH": "/bin"}
    )


def test_the_example_passes(tmp_path: Path) -> None:
    write_example(tmp_path)
    done = run_example(tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_finds_a_consumer_that_counts_twice(tmp_path: Path) -> None:
    write_example(tmp_path, careless=True)
    done = run_example(tmp_path, "-x")
    assert "NotReachedError: seed" in done.stdout, done.stdout + done.stderr


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
