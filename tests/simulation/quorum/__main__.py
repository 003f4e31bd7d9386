"""Runs of the simulated quorum: `python -m tests.simulation.quorum --seeds 0:100`; one line of JSON each.

A seed that fails is run again by its number. All runs share one process: nothing but the seed decides a run.
"""

import argparse
import gc
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from tests.simulation.quorum.broken import BREAKAGES, Breakage
from tests.simulation.quorum.world import KINDS, World


def main() -> int:
    """Returns 1 if a run has failed; of a broken quorum: if none has."""
    options = _options()
    breakage = Breakage(options.broken) if options.broken else None
    gc.freeze()
    gc.set_threshold(500_000)  # a tenth of the time would go into looking for garbage
    began = time.process_time()
    failed: list[int] = []
    committed = elections = done = 0
    for seed in options.seeds:
        report = run(seed, breakage, tuple(options.faults.split(",")) if options.faults else None)
        done += 1
        committed += report.get("committed", 0)
        elections += report.get("elections", 0)
        if report["problem"] is not None:
            failed.append(seed)
        if report["problem"] is not None or not options.only_failures:
            print(json.dumps(report), flush=True)
        if failed and breakage is not None and options.until_caught:
            break
    if options.summary:
        seconds = round(time.process_time() - began, 1)
        summary = {"runs": done, "failed": failed, "committed": committed, "elections": elections}
        print(json.dumps({**summary, "cpu_seconds": seconds}), flush=True)
    return int(bool(failed)) if breakage is None else int(not failed)


def run(seed: int, breakage: Breakage | None = None, kinds: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The report of one run."""
    case = None if breakage is None else BREAKAGES[breakage]
    world = World(seed, kinds or (case.faults if case else None))
    try:
        with nullcontext() if case is None else case.broken():
            return asdict(world.run())
    except Exception as problem:
        return {
            "seed": seed,
            "problem": f"{type(problem).__name__}: {problem}",
            "faults": dict(world.happened),
            "virtual_seconds": world.now / 1000,
        }


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.quorum", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default="0:10", metavar="FIRST:LAST", help="up to before the last")
    parser.add_argument("--faults", help=f"kinds, comma-separated, else the seed decides: {', '.join(KINDS)}")
    parser.add_argument("--broken", choices=[each.value for each in Breakage], help="a quorum that is to be found out")
    parser.add_argument("--until-caught", action="store_true", help="end with the run that finds a broken quorum out")
    parser.add_argument("--only-failures", action="store_true", help="say nothing of runs that find nothing")
    parser.add_argument("--summary", action="store_true", help="end with one line about all runs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
