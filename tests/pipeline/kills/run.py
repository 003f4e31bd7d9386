"""One run: a cluster, a query, a number of kills, and the count at the end."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipeline.kills import victims
from tests.pipeline.kills.records import Feeder, Reader
from tests.pipeline.kills.victims import Victim
from tests.support.broker_process import BrokerProcess
from tests.support.spark_cluster import SparkCluster

SOURCE_PARTITIONS: Final = 6
SINK_PARTITIONS: Final = 3
_BATCHES_AHEAD: Final = 5
_PROGRESS_TIMEOUT_S: Final = 900.0
_DRAIN_TIMEOUT_S: Final = 600.0
_REPOSITORY: Final = Path(__file__).resolve().parents[3]


@dataclass
class Verdict:
    """`in_flight`: kills while a micro-batch was being written."""

    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    in_flight: int = 0
    sent: int = 0
    received: int = 0
    doubled: int = 0
    missing: int = 0
    problems: list[str] = field(default_factory=list)
    batches: int = 0
    repeated_tasks: int = 0
    """Tasks that found their records written by an earlier attempt."""
    restarts: int = 0
    """Restarts of the query after it failed."""
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return not (self.doubled or self.missing or self.problems) and self.received == self.sent

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"right": self.is_right}


class Run:
    """One run: `kills` has the number for each kind of victim; the seed decides their order and times."""

    def __init__(
        self,
        broker: BrokerProcess,
        directory: Path,
        *,
        kills: Mapping[Victim, int],
        seed: int,
        guarantee: str = "exactly-once",
        settings: Mapping[str, str] | None = None,
        max_offsets: int = 600,
        pause_s: tuple[float, float] = (0.2, 2.5),
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._chance = random.Random(seed)
        self._plan = [victim for victim, count in kills.items() for _ in range(count)]
        self._chance.shuffle(self._plan)
        self._pause_s = pause_s
        self._backlog = _BATCHES_AHEAD * max_offsets
        self._checkpoint = directory / "checkpoint"
        self._given: dict[str, Any] = {
            "bootstrap": broker.bootstrap,
            "source": f"kills-{seed}-source",
            "sink": f"kills-{seed}-sink",
            "checkpoint": str(self._checkpoint),
            "directory": str(directory / "spark"),
            "guarantee": guarantee,
            "max_offsets": max_offsets,
            "settings": dict(settings or {}),
        }
        self._driver: subprocess.Popen[bytes] | None = None
        self._asleep: list[tuple[float, psutil.Process]] = []
        self.verdict = Verdict(seed)

    def __call__(self) -> Verdict:
        began = time.monotonic()
        self._directory.mkdir(parents=True, exist_ok=True)
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        topics = ((self._given["source"], SOURCE_PARTITIONS), (self._given["sink"], SINK_PARTITIONS))
        for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics]).values():
            future.result(60)
        reader = Reader(self._broker.bootstrap, self._given["sink"], SINK_PARTITIONS)
        feeder = Feeder(
            self._broker.bootstrap,
            self._given["source"],
            SOURCE_PARTITIONS,
            self._backlog,
            lambda: reader.found.records,
        )
        with SparkCluster(self._directory / "cluster") as cluster:
            self._given["master"] = cluster.master_url
            self._start_driver()
            try:
                feeder.start()
                for victim in self._plan:
                    self._strike(victim, reader)
                    reader.follow(self._chance.uniform(*self._pause_s))
                self._wake(everyone=True)
                feeder.stop()
                self._drain(reader, feeder.sent)
            finally:
                self._wake(everyone=True)
                self._end_driver()
        reader.found.compare(feeder.sent)
        found, verdict = reader.found, self.verdict
        verdict.sent, verdict.received = feeder.sent, found.records
        verdict.doubled, verdict.missing, verdict.problems = found.doubled, found.missing, found.problems
        verdict.batches = self._done()
        output = (self._directory / "driver.log").read_text(errors="replace")
        errors = (self._directory / "spark" / "spark.err").read_text(errors="replace")
        verdict.restarts = output.count("the query failed")
        verdict.repeated_tasks = sum(
            int(line.split(" of ")[0].rsplit(" ", 1)[1])
            for line in errors.splitlines()
            if "tasks had been written by an earlier attempt" in line
        )
        verdict.seconds = round(time.monotonic() - began, 1)
        reader.close()
        return verdict

    # -- killing ---------------------------------------------------------------------------------

    def _strike(self, victim: Victim, reader: Reader) -> None:
        """Kill one, as soon as there is one; a query that gets nowhere meanwhile is an error.

        The reader follows, since the feeder stays only so far ahead of it.
        """
        deadline = time.monotonic() + _PROGRESS_TIMEOUT_S
        while not self._kill(victim):
            assert time.monotonic() < deadline, f"there was no {victim} to kill; see {self._directory}/driver.log"
            reader.follow(0.1)
        if victim is Victim.DRIVER or sum(self.verdict.kills.values()) % 20 == 0:
            self._await_progress(reader)

    def _kill(self, victim: Victim) -> bool:
        self._wake()
        in_flight = self._begun() > self._done()
        if not self._kill_one(victim):
            return False
        self.verdict.kills[victim.value] = self.verdict.kills.get(victim.value, 0) + 1
        self.verdict.in_flight += in_flight
        number = sum(self.verdict.kills.values())
        with (self._directory / "kills.log").open("a") as log:
            print(f"{time.time():.3f} {number} {victim} batch={self._begun()} in_flight={in_flight}", file=log)
        return True

    def _kill_one(self, victim: Victim) -> bool:
        match victim:
            case Victim.DRIVER:
                return self._kill_driver()
            case Victim.PLANNER:
                return self._kill_any(victims.planners(self._driver_pid))
            case Victim.TASK:
                jvms = victims.executors()
                return self._kill_any([worker for jvm in jvms for worker in victims.python_workers(jvm)])
            case Victim.EXECUTOR:
                return self._kill_any(victims.executors())
            case Victim.HUNG:
                found = [(jvm, victims.python_workers(jvm)) for jvm in victims.executors()]
                busy = [(jvm, workers) for jvm, workers in found if workers]
                if not busy:
                    return False
                jvm, workers = self._chance.choice(busy)
                wake_at = time.monotonic() + self._chance.uniform(1, 8)
                self._asleep += [(wake_at, worker) for worker in workers if victims.pause(worker)]
                return victims.kill(jvm)

    def _kill_any(self, processes: list[psutil.Process]) -> bool:
        return bool(processes) and victims.kill(self._chance.choice(processes))

    def _kill_driver(self) -> bool:
        """Its Python and its JVM at once. The executors are left to notice."""
        driver = self._driver
        assert driver is not None
        jvm = victims.driver_jvm(driver.pid)
        if jvm is None or not self._begun() > 0:
            return False
        victims.kill(jvm)
        driver.kill()
        driver.wait()
        self._start_driver()
        return True

    def _wake(self, *, everyone: bool = False) -> None:
        now = time.monotonic()
        due = [process for at, process in self._asleep if everyone or at <= now]
        self._asleep = [(at, process) for at, process in self._asleep if not (everyone or at <= now)]
        for process in due:
            victims.wake(process)

    # -- the driver ------------------------------------------------------------------------------

    @property
    def _driver_pid(self) -> int:
        assert self._driver is not None
        return self._driver.pid

    def _start_driver(self) -> None:
        with (self._directory / "driver.log").open("ab") as output:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.kills.driver", json.dumps(self._given)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=_REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(_REPOSITORY / "src"), str(_REPOSITORY)))},
            )

    def _end_driver(self) -> None:
        """Its work is done and counted, so it need not end by itself. Executors end with the cluster."""
        driver = self._driver
        if driver is not None:
            left = victims.descendants(driver.pid)
            driver.kill()
            driver.wait()
            for process in left:
                victims.kill(process)

    def _begun(self) -> int:
        return self._last("offsets")

    def _done(self) -> int:
        return self._last("commits")

    def _last(self, log: str) -> int:
        directory = self._checkpoint / log
        names = os.listdir(directory) if directory.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _await_progress(self, reader: Reader) -> None:
        before = self._done()
        deadline = time.monotonic() + _PROGRESS_TIMEOUT_S
        while self._done() <= before:
            assert time.monotonic() < deadline, f"the query gets nowhere; see {self._directory}/driver.log"
            reader.follow(0.2)

    def _drain(self, reader: Reader, sent: int) -> None:
        """Read on until all is there, and then for a while, for what should not be there."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        still_since = time.monotonic()
        while time.monotonic() < deadline:
            if reader.follow(0.5):
                still_since = time.monotonic()
            elif reader.found.records >= sent and self._begun() == self._done() and time.monotonic() > still_since + 2:
                return
            self._wake()
