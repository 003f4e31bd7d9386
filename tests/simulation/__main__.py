"""Runs of the simulated cluster: `python -m tests.simulation --seeds 0:100`; one line of JSON each.

A seed that fails is run again by its number, with `--log` to see what the brokers had to say.
"""

import argparse
import json
import logging
import os
import sys
import time
import traceback
from dataclasses import asdict

from tests.simulation.world import Plan, World


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # the order of sets of text would differ from process to process, and with it what happens
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    first, _, last = options.seeds.partition(":")
    failed = 0
    for seed in range(int(first), int(last) if last else int(first) + 1):
        plan = Plan(
            seed,
            brokers=options.brokers,
            replicas=min(options.replicas, options.brokers),
            seconds=options.seconds,
        )
        began = time.monotonic()
        world = World(plan)
        _log(world, wanted=options.log)
        try:
            report = asdict(world.run())
        except Exception as problem:
            failed += 1
            report = {"seed": seed, "problem": f"{type(problem).__name__}: {problem}", "faults": dict(world.faults)}
            if options.log:
                traceback.print_exc()
        print(json.dumps({**report, "seconds": round(time.monotonic() - began, 2)}), flush=True)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:10", metavar="FIRST:LAST", help="from the first to before the last")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of trouble, in virtual time")
    parser.add_argument("--log", action="store_true", help="print what the brokers say, with the virtual time")
    return parser.parse_args()


def _log(world: World, *, wanted: bool) -> None:
    class VirtualTime(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"{world.loop.time():9.3f} {record.levelname} {record.name}: {record.getMessage()}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(VirtualTime())
    logging.basicConfig(handlers=[handler] if wanted else [logging.NullHandler()], level=logging.INFO, force=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # brokers that were killed are not to be collected: their `finally` blocks never run
