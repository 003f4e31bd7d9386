"""What a benchmark is: figures with goals, and a function that measures one broker once."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.support.broker_process import BrokerProcess

from benches.clusters import Cluster
from benches.contestants import Contestant

SESSION_MS: Final = 6000
"""For how long a broker of a cluster may be silent; the same for all kinds."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a contestant should reach: `ratio` to the baseline in the same round, or an absolute `value`."""

    kind: Literal["ratio", "value"]
    limit: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a benchmark gives; `goals` by contestant."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    goals: Mapping[str, Goal] = field(default_factory=dict)

    def reached(self, goal: Goal, value: float, ratio: float | None) -> bool | None:
        """Whether `value` and its `ratio` to the baseline reach `goal`; None when there is nothing to compare."""
        number = value if goal.kind == "value" else ratio
        if number is None:
            return None
        return number >= goal.limit if self.better == "higher" else number <= goal.limit


@dataclass(frozen=True, slots=True)
class Bench:
    """The circumstances of a run: cores, places, size."""

    broker_cpus: tuple[int, ...]
    data_root: Path
    quick: bool
    say: Callable[[str], None]
    snapshot_rows: int | None = None
    """Rows of the table in `connect-snapshot`; None: as many as the goal names."""

    def scaled(self, full: int, quick: int) -> int:
        """`full`, or `quick` in a quick run."""
        return quick if self.quick else full

    @contextmanager
    def broker(self, contestant: Contestant, *, started: bool = True, **properties: str) -> Iterator[BrokerProcess]:
        """A broker on an empty directory, which is removed afterwards."""
        directory = self._empty_directory(contestant)
        broker = contestant.broker(directory, self.broker_cpus, properties)
        try:
            if started:
                broker.start()
            yield broker
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def cluster(
        self,
        contestant: Contestant,
        brokers: int = 3,
        *,
        started: bool = True,
        session_ms: int = SESSION_MS,
        **properties: str,
    ) -> Iterator[Cluster]:
        """Several brokers, all on the broker's core, on empty directories, which are removed afterwards."""
        directory = self._empty_directory(contestant)
        settings = {name.replace(".", "_"): value for name, value in contestant.properties.items()} | properties
        cluster = contestant.cluster(directory, brokers, self.broker_cpus, session_ms, **settings)
        try:
            if started:
                cluster.start()
            yield cluster
        finally:
            cluster.remove()

    def _empty_directory(self, contestant: Contestant) -> Path:
        self.data_root.mkdir(parents=True, exist_ok=True)
        directory = self.data_root / contestant.name
        number = 0
        while directory.exists():
            number += 1
            directory = self.data_root / f"{contestant.name}-{number}"
        return directory


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named measurement.

    `measure` runs it once against one broker and returns a value for every figure. `disk_gb` is what it needs at most.
    `max_rounds` bounds the repetitions of a long one. `contestants` limits who takes part.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    measure: Callable[[Contestant, Bench], dict[str, float]]
    disk_gb: float
    max_rounds: int = 100
    contestants: frozenset[str] | None = None
