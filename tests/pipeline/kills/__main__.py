"""`make kills ARGS="--kills 300 --seed 7"`: kill a streaming query part by part, and count its output.

A run has a Spark master, a worker and a broker of its own. Tasks (Python workers), executors (also with their Python
workers stopped, whose transactions stay open while others repeat their tasks), the driver's Python processes and the
driver itself are killed with SIGKILL at random moments; what dies is started again by Spark, or by the run where it is
the driver. In the end a client that reads committed records only must have been given each record once, and in order
for each key. That a worker which does come back is refused is held by `test_exactly_once`: here none comes back.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.pipeline.kills.run import Run
from tests.pipeline.kills.victims import Victim
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "kills"
_TARGETS: Final[Mapping[str, Callable[[Path], BrokerProcess]]] = {"ottla": OttlaProcess, "genuine": GenuineKafka}
_SHARES: Final = {Victim.TASK: 66, Victim.EXECUTOR: 15, Victim.HUNG: 5, Victim.PLANNER: 4, Victim.DRIVER: 10}
_BROKEN: Final[Mapping[str | None, Mapping[str, Any]]] = {
    None: {},
    "at-least-once": {"guarantee": "at-least-once"},
    "no-marks": {"settings": {"spark.python.daemon.module": "tests.pipeline.kills.forgetful_daemon"}},
}


def shares(kills: int) -> dict[Victim, int]:
    """So many kills in all, shared out as `_SHARES` has them; what rounding leaves goes to tasks."""
    found = {victim: kills * share // 100 for victim, share in _SHARES.items()}
    found[Victim.TASK] += kills - sum(found.values())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="in all (default: %(default)d)")
    parser.add_argument("--round", type=int, default=30, help="kills of one run (default: %(default)d)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run (default: from the clock)")
    parser.add_argument("--target", choices=_TARGETS, default="ottla")
    parser.add_argument("--broken", choices=[name for name in _BROKEN if name], help="without what it takes: found out")
    parser.add_argument("--directory", type=Path, default=_CACHE, help="of the runs (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="a line for each run is appended to it")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    seed = int(time.time()) if given.seed is None else given.seed
    left, wrong = given.kills, 0
    while left > 0:
        kills = min(left, given.round)
        directory = given.directory / f"{given.target}-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        with _TARGETS[given.target](directory / "broker") as broker:
            verdict = Run(broker, directory, kills=shares(kills), seed=seed, **_BROKEN[given.broken])()
        line = json.dumps({"target": given.target, "broken": given.broken, **verdict.as_dict()})
        print(line, flush=True)
        if given.json is not None:
            with given.json.open("a") as file:
                print(line, file=file)
        wrong += not verdict.is_right
        left, seed = left - kills, seed + 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
