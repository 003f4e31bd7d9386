"""A simulated machine."""

import asyncio

from ottla.testing.simulation.loop import SimLoop
from ottla.testing.simulation.machine import ExecutorRunner


def test_a_runner_does_what_is_left_when_it_closes_and_nothing_later() -> None:
    """A broker closes its logs behind that. A later sync wrote older leader epochs over theirs (seed 12005)."""
    loop = SimLoop(seed=0)
    done: list[str] = []
    runner = ExecutorRunner(loop)
    runner.run(lambda: done.append("first"))
    loop.run_until_complete(asyncio.sleep(1))
    assert done == ["first"]
    runner.run(lambda: done.append("second"))
    runner.run(lambda: done.append("third"))
    assert done == ["first"]
    runner.close()
    assert done == ["first", "second", "third"]
    loop.run_until_complete(asyncio.sleep(1))
    assert done == ["first", "second", "third"]
    loop.close()
