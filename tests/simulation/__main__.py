"""Runs of the simulated cluster: `python -m tests.simulation --seeds 0:100`; one line of JSON each.

A seed that fails is run again by its number, with `--log` to see what the brokers had to say. Each run has a process of
its own, forked from this one: brokers that were killed are never collected, since their `finally` blocks must not run.
"""

import argparse
import gc
import json
import logging
import os
import re
import sys
import time
import traceback
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Final

from tests.simulation.broken import BREAKAGES, Breakage
from tests.simulation.world import Plan, World

KEPT: Final[list[World]] = []
"""Its brokers must not be collected."""


def main() -> int:
    """Returns how many runs have failed, at most 1; of a broken cluster: whether none has."""
    options = _options()
    breakage = Breakage(options.broken) if options.broken else None
    kinds = options.faults.split(",") if options.faults else ()
    if breakage is not None and not kinds:
        kinds = BREAKAGES[breakage].faults
    quorum = options.quorum or (breakage is not None and BREAKAGES[breakage].quorum)
    began = time.monotonic()
    totals: dict[str, int] = defaultdict(int)
    _warm_up(quorum=quorum)
    failed: list[int] = []
    done = 0
    for seed in options.seeds:
        plan = Plan(
            seed,
            quorum=quorum,
            brokers=options.brokers,
            replicas=min(options.replicas, options.brokers),
            seconds=options.seconds,
            kinds=tuple(kinds),
        )
        report = _in_a_fork(plan, breakage, wants_log=options.log)
        if "problem" in report or not options.only_failures:
            print(json.dumps(report), flush=True)
        done += 1
        totals["acknowledged"] += report.get("acknowledged", 0)
        totals["faults"] += sum(report["faults"].values())
        if "problem" in report:
            failed.append(seed)
            if (
                breakage is not None
                and options.until_caught
                and re.search(BREAKAGES[breakage].finds, report["problem"])
            ):
                break
    summary = {"runs": done, "failed": failed, **totals, "seconds": round(time.monotonic() - began, 1)}
    if options.summary:
        print(json.dumps(summary), flush=True)

    return int(not failed) if breakage is not None else int(bool(failed))


def _warm_up(*, quorum: bool) -> None:
    """A short run that imports everything and has the codecs compiled, for all forks."""
    gc.disable()
    logging.disable(logging.CRITICAL)
    world = World(Plan(0, quorum=quorum, seconds=1.0, kinds=("kill", "reassign")))
    world.run()
    KEPT.append(world)
    logging.disable(logging.NOTSET)


def _in_a_fork(plan: Plan, breakage: Breakage | None, *, wants_log: bool) -> dict[str, Any]:
    """The report of one run. A process that ends without one has failed, too."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(readable)
            text = json.dumps(_report(plan, breakage, wants_log=wants_log))
            with os.fdopen(writable, "w") as pipe:
                pipe.write(text)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        return {"seed": plan.seed, "problem": "the run has ended without a report", "faults": {}}
    report: dict[str, Any] = json.loads(text)
    return report


def _report(plan: Plan, breakage: Breakage | None, *, wants_log: bool) -> dict[str, Any]:
    began = time.process_time()
    world = World(plan)
    _log(world, wanted=wants_log)
    try:
        with nullcontext() if breakage is None else BREAKAGES[breakage].broken():
            report = asdict(world.run())
    except Exception as problem:
        if wants_log:
            traceback.print_exc()
        report = {
            "seed": plan.seed,
            "problem": f"{type(problem).__name__}: {problem}",
            "faults": dict(world.faults.happened),
            "virtual_seconds": round(world.loop.time(), 3),
        }
    return {**report, "cpu_seconds": round(time.process_time() - began, 2)}


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=_seeds, default="0:10", metavar="FIRST:LAST", help="from the first to before the last"
    )
    parser.add_argument("--quorum", action="store_true", help="with controllers in the brokers' processes")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of trouble, in virtual time")
    parser.add_argument("--faults", help="kinds of faults, comma-separated; else the seed decides which")
    parser.add_argument("--broken", choices=[each.value for each in Breakage], help="a cluster that is to be found out")
    parser.add_argument("--until-caught", action="store_true", help="end with the run that finds a broken cluster out")
    parser.add_argument("--only-failures", action="store_true", help="say nothing of runs that find nothing")
    parser.add_argument("--summary", action="store_true", help="end with one line about all runs")
    parser.add_argument("--log", action="store_true", help="print what the brokers say, with the virtual time")
    return parser.parse_args()


def _log(world: World, *, wanted: bool) -> None:
    class VirtualTime(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
            return f"{world.loop.time():9.3f} {record.levelname} {record.name}: {record.getMessage()}{trace}"

    if not wanted:
        logging.disable(logging.CRITICAL)
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(VirtualTime())
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)


if __name__ == "__main__":
    sys.exit(main())
