"""`python -m tests.chaos --seconds 600 --seed 7`: runs of half a minute in turn, each with the next seed.

With `--brokers 3` they are over a cluster in network namespaces, and last a minute each.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.broken import CASES, SHARE_CASES, Breakage, BrokenOttla
from tests.chaos.cluster_broken import CLUSTER_CASES, ClusterBreakage
from tests.chaos.cluster_network import NetworkUnavailable
from tests.chaos.cluster_nodes import Makeup
from tests.chaos.cluster_plan import OF_WORKERS, ClusterFault
from tests.chaos.cluster_run import cluster_run, cluster_target, possible
from tests.chaos.plan import Fault
from tests.chaos.run import BROKER_PROPERTIES, WORKLOADS, Run, Verdict, Workload, tell
from tests.chaos.share_run import SHARE_PROPERTIES, ShareRun, ShareVerdict
from tests.chaos.target import OneBroker, Target
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

_TARGETS: Final[Mapping[str, Callable[[Path], BrokerProcess]]] = {
    "ottla": lambda directory: OttlaProcess(directory, properties=BROKER_PROPERTIES),
    "ottla-lost-cache": lambda directory: BrokenOttla(Breakage.NONE, directory, properties=BROKER_PROPERTIES),
    "genuine": lambda directory: GenuineKafka(directory, properties=BROKER_PROPERTIES),
}
SHARE: Final = "share"
"""The workload of share groups, which has a checker of its own."""
_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "chaos"
_FAULTS: Final[Mapping[int, tuple[Enum, ...]]] = {1: tuple(Fault), 3: (*ClusterFault, *OF_WORKERS)}
_BREAKAGES: Final[Mapping[int, tuple[Enum, ...]]] = {1: tuple(Breakage), 3: tuple(ClusterBreakage)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=90.0, help="of trouble in all (default: %(default).0f)")
    length.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument("--brokers", type=int, choices=_FAULTS, default=1, help="(default: %(default)d)")
    parser.add_argument(
        "--loopback",
        action="store_true",
        help="of several brokers: without network namespaces, and so without partitions and full disks; needs no root",
    )
    metadata = parser.add_mutually_exclusive_group()
    metadata.add_argument(
        "--zookeeper",
        dest="makeup",
        action="store_const",
        const=Makeup.ZOOKEEPER,
        default=Makeup.QUORUM,
        help="several brokers on ZooKeeper (default: each is a controller as well)",
    )
    metadata.add_argument(
        "--mixed", type=int, choices=(1, 2), help="so many of the three nodes are genuine Kafka, in both roles"
    )
    parser.add_argument("--round", type=float, help="seconds of one run (default: 30, with several brokers 60)")
    parser.add_argument("--seed", type=int, help="of the first run (default: from the clock)")
    parser.add_argument(
        "--workload", choices=("all", *WORKLOADS, SHARE), default="all", help="all: mixed, relay and share in turn"
    )
    parser.add_argument("--clients", choices=("python", "java"), nargs="+", default=("python", "java"))
    parser.add_argument(
        "--target",
        choices=_TARGETS,
        help="ottla-lost-cache: SIGKILL loses what was not synced, like a power failure; genuine: Apache Kafka "
        "(default: ottla; several nodes of Ottla with their own controllers: ottla and ottla-lost-cache in turn)",
    )
    parser.add_argument("--faults", nargs="+", metavar="FAULT", help=f"what may break: {_told(_FAULTS)} (default: all)")
    parser.add_argument("--group-protocol", choices=("both", "classic", "consumer"), default="both")
    parser.add_argument("--broken", help=f"broken on purpose: {_told(_BREAKAGES)}")
    parser.add_argument("--directory", type=Path, default=_CACHE, help="of the histories (default: %(default)s)")
    return parser


def _told(names: Mapping[int, tuple[Enum, ...]]) -> str:
    return "; ".join(f"with {count}: " + ", ".join(repr(one.value) for one in of) for count, of in names.items())


def _named(parser: argparse.ArgumentParser, name: str, among: tuple[Enum, ...]) -> Enum:
    found = {one.value: one for one in among}
    if name not in found:
        parser.error(f"there is no {name!r} here; there are " + ", ".join(repr(one.value) for one in among))
    return found[name]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, of the command line unless `words` are given. Ends the program if they do not fit together."""
    parser = _parser()
    arguments = parser.parse_args(words)
    count: int = arguments.brokers
    if arguments.minutes is not None:
        arguments.seconds = arguments.minutes * 60
    if arguments.round is None:
        arguments.round = 30.0 if count == 1 else 60.0
    if count > 1 and arguments.target == "genuine":
        parser.error("--target genuine is for one broker")
    if arguments.mixed is not None:
        arguments.makeup = Makeup.ONE_GENUINE if arguments.mixed == 1 else Makeup.TWO_GENUINE
    if count == 1 and arguments.makeup is not Makeup.QUORUM:
        parser.error("--zookeeper and --mixed are for several brokers")
    if arguments.makeup.genuine and (arguments.broken is not None or arguments.target is not None):
        parser.error("--broken and --target are for nodes that are all Ottla")
    if count == 1 and arguments.loopback:
        parser.error("--loopback is for several brokers; one is always there")
    if arguments.workload == SHARE and not _has_share_groups(arguments):
        parser.error(
            "share groups are tried with --target ottla alone, without --mixed, and their members are Java clients"
        )
    arguments.names_faults = arguments.faults is not None
    faults = arguments.faults or [fault.value for fault in _FAULTS[count]]
    arguments.faults = tuple(_named(parser, name, _FAULTS[count]) for name in faults)
    if arguments.broken is not None:
        arguments.broken = _named(parser, arguments.broken, _BREAKAGES[count])
    return arguments


def _has_share_groups(arguments: argparse.Namespace) -> bool:
    is_ottla = arguments.target in (None, "ottla") or arguments.brokers > 1
    return is_ottla and not arguments.makeup.genuine and "java" in arguments.clients


def turn(arguments: argparse.Namespace, seed: int) -> tuple[str, str]:
    """The workload and the group protocol of the run with this seed."""
    if arguments.broken in SHARE_CASES:
        names = [SHARE]
    elif arguments.workload != "all":
        names = [arguments.workload]
    else:
        names = ["mixed", "relay"]
        if arguments.broken is None and _has_share_groups(arguments):
            names.append(SHARE)
    protocols = ["classic", "consumer"] if arguments.group_protocol == "both" else [arguments.group_protocol]
    return names[seed % len(names)], protocols[seed // len(names) % len(protocols)]


def breakage_of(arguments: argparse.Namespace, seed: int) -> ClusterBreakage:
    """What the nodes of a cluster are in the run with this seed: broken as was asked for, or sound ones that by turns
    keep and lose their page caches."""
    if arguments.broken is not None:
        return ClusterBreakage(arguments.broken)
    if arguments.target == "ottla-lost-cache":
        return ClusterBreakage.LOST_CACHE
    takes_turns = arguments.target is None and arguments.makeup is Makeup.QUORUM
    return (ClusterBreakage.NONE, ClusterBreakage.LOST_CACHE)[takes_turns and seed // 2 % 2]


def _once(arguments: argparse.Namespace, seed: int, seconds: float) -> Verdict | ShareVerdict:
    name, protocol = turn(arguments, seed)
    if name == SHARE:
        return _share_once(arguments, seed, seconds)
    workload = WORKLOADS[name].of(*arguments.clients)
    over = _over_cluster if arguments.brokers > 1 else _over_one
    directory, verdict = over(arguments, workload, protocol, seed, seconds)
    with (directory / "verdict.txt").open("w", encoding="utf-8") as file:
        tell(verdict, lambda text: print(text, file=file))
    tell(verdict, lambda text: print(text, flush=True))
    return verdict


def _share_once(arguments: argparse.Namespace, seed: int, seconds: float) -> ShareVerdict:
    breakage = arguments.broken
    name = SHARE if breakage is None else breakage.value
    directory = arguments.directory / f"{arguments.brokers}-{name}-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    target: Target
    with ExitStack() as stack:
        if arguments.brokers > 1:
            target = stack.enter_context(
                cluster_target(
                    directory,
                    SHARE_PROPERTIES,
                    makeup=arguments.makeup,
                    breakage=breakage_of(arguments, seed),
                    loopback=arguments.loopback,
                )
            )
        else:
            properties = {**BROKER_PROPERTIES, **SHARE_PROPERTIES}
            broker = (
                OttlaProcess(directory / "broker", properties=properties)
                if breakage is None
                else BrokenOttla(breakage, directory / "broker", properties=properties)
            )
            stack.callback(broker.kill)
            target = OneBroker(broker)
        faults = arguments.faults if breakage is None else SHARE_CASES[breakage].faults
        if arguments.brokers > 1:
            faults = possible(faults, loopback=arguments.loopback, makeup=arguments.makeup)
        verdict = ShareRun(target, seed=seed, seconds=seconds, directory=directory, faults=faults)()
    (directory / "verdict.txt").write_text("\n".join([*verdict.lines(), ""]))
    print("\n".join(verdict.lines()), flush=True)
    return verdict


def _over_one(
    arguments: argparse.Namespace, workload: Workload, protocol: str, seed: int, seconds: float
) -> tuple[Path, Verdict]:
    faults = arguments.faults
    if arguments.broken is None:
        target = arguments.target or "ottla"
        directory = arguments.directory / f"{target}-{workload.name}-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        broker = _TARGETS[target](directory / "broker")
    else:
        breakage = arguments.broken
        workload, faults = WORKLOADS[CASES[breakage].workload].of("python"), CASES[breakage].faults
        directory = arguments.directory / f"{breakage.value}-{workload.name}-{seed}"
        shutil.rmtree(directory, ignore_errors=True)
        broker = BrokenOttla(breakage, directory / "broker", properties=BROKER_PROPERTIES)
    run = Run(
        OneBroker(broker),
        workload,
        seed=seed,
        seconds=seconds,
        directory=directory,
        faults=faults,
        group_protocol=protocol,
    )
    try:
        return directory, run()
    finally:
        broker.kill()


def _over_cluster(
    arguments: argparse.Namespace, workload: Workload, protocol: str, seed: int, seconds: float
) -> tuple[Path, Verdict]:
    faults, breakage, properties = arguments.faults, breakage_of(arguments, seed), None
    makeup = arguments.makeup
    if arguments.broken is not None:
        case = CLUSTER_CASES[breakage]
        workload, properties = WORKLOADS[case.workload].of("python"), case.properties
        faults = faults if arguments.names_faults else case.faults
        makeup = Makeup.ZOOKEEPER if case.on_zookeeper else makeup
    directory = arguments.directory / f"{arguments.brokers}-{breakage.value}-{workload.name}-{seed}"
    return directory, cluster_run(
        directory,
        workload,
        seed=seed,
        seconds=seconds,
        faults=faults,
        group_protocol=protocol,
        makeup=makeup,
        breakage=breakage,
        loopback=arguments.loopback,
        properties=properties,
    )


def main() -> int:
    """Run until the time is over; the exit code is 1 if any run found something, 2 if none can be made."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of all that cleans up
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    left, failed = arguments.seconds, 0
    while left > 0:
        try:
            failed += not _once(arguments, seed, min(left, arguments.round)).is_sound
        except NetworkUnavailable as reason:
            print(f"{reason}\nWithout partitions and full disks it goes on loopback: --loopback", file=sys.stderr)
            return 2
        except BrokerFailedError as failure:
            print(f"seed {seed}: {failure}", flush=True)
            failed += 1
        left -= arguments.round
        seed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
