"""`python -m tests.chaos --seconds 600 --seed 7`: runs of half a minute in turn, each with the next seed."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.broken import CASES, Breakage, BrokenOttla
from tests.chaos.plan import Fault
from tests.chaos.run import BROKER_PROPERTIES, WORKLOADS, Run, Verdict, tell
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

_TARGETS: Final[Mapping[str, Callable[[Path], BrokerProcess]]] = {
    "ottla": lambda directory: OttlaProcess(directory, properties=BROKER_PROPERTIES),
    "ottla-lost-cache": lambda directory: BrokenOttla(Breakage.NONE, directory, properties=BROKER_PROPERTIES),
    "genuine": lambda directory: GenuineKafka(directory, properties=BROKER_PROPERTIES),
}
_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "chaos"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of trouble in all (default: %(default).0f)")
    parser.add_argument("--round", type=float, default=30.0, help="seconds of one run (default: %(default).0f)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run (default: from the clock)")
    parser.add_argument("--workload", choices=("all", *WORKLOADS), default="all", help="all: mixed and relay in turn")
    parser.add_argument(
        "--target",
        choices=_TARGETS,
        default="ottla",
        help="ottla-lost-cache: SIGKILL loses what was not synced, like a power failure; genuine: Apache Kafka",
    )
    parser.add_argument(
        "--faults",
        nargs="+",
        type=Fault,
        default=tuple(Fault),
        metavar="FAULT",
        help="what may break: " + ", ".join(repr(fault.value) for fault in Fault) + " (default: all)",
    )
    parser.add_argument("--group-protocol", choices=("both", "classic", "consumer"), default="both")
    parser.add_argument(
        "--broken", choices=[breakage.value for breakage in Breakage], help="a broker broken on purpose"
    )
    parser.add_argument("--directory", type=Path, default=_CACHE, help="of the histories (default: %(default)s)")
    return parser.parse_args()


def _once(arguments: argparse.Namespace, seed: int, seconds: float) -> Verdict:
    names = ["mixed", "relay"] if arguments.workload == "all" else [arguments.workload]
    protocols = ["classic", "consumer"] if arguments.group_protocol == "both" else [arguments.group_protocol]
    workload, protocol = WORKLOADS[names[seed % len(names)]], protocols[seed // len(names) % len(protocols)]
    faults = tuple(arguments.faults)
    if arguments.broken is None:
        directory = arguments.directory / f"{arguments.target}-{workload.name}-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        broker = _TARGETS[arguments.target](directory / "broker")
    else:
        breakage = Breakage(arguments.broken)
        workload, faults = WORKLOADS[CASES[breakage].workload].of("python"), CASES[breakage].faults
        directory = arguments.directory / f"{breakage.value}-{workload.name}-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        broker = BrokenOttla(breakage, directory / "broker", properties=BROKER_PROPERTIES)
    run = Run(broker, workload, seed=seed, seconds=seconds, directory=directory, faults=faults, group_protocol=protocol)
    try:
        verdict = run()
    finally:
        broker.kill()
    with (directory / "verdict.txt").open("w", encoding="utf-8") as file:
        tell(verdict, lambda text: print(text, file=file))
    tell(verdict, lambda text: print(text, flush=True))
    return verdict


def main() -> int:
    """Run until the time is over; the exit code is 1 if any run found something."""
    arguments = _arguments()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    left, failed = arguments.seconds, 0
    while left > 0:
        failed += not _once(arguments, seed, min(left, arguments.round)).is_sound
        left -= arguments.round
        seed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
