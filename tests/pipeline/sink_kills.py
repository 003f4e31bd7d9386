"""Kills the driver of four streams, into Parquet, Delta, Iceberg and SQLite, at random, and counts what arrived.

`python -m tests.pipeline.sink_kills --kills 20`: rows keep coming in as long as there are kills; in the end every row
has to be in every table once. The shorter runs of `make test` kill sinks at each of their steps, without Spark.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from ottla.pipeline import session
from ottla.pipeline.context import QuerySpec
from tests.pipeline.flow import Flow
from tests.pipeline.sink_targets import Target

KINDS: Final = ("parquet", "delta", "iceberg", "database")
COLUMNS: Final = "flight INT, carrier STRING"
_ROWS_PER_FILE: Final = 50
_FILES_PER_ROUND: Final = 8


def write_streams(directory: Path, once: bool) -> None:
    """The process that is killed."""
    context = session.launch("sink-kills", directory / "spark", cores=2)
    spark = session.open_session()
    queries = []
    for kind in KINDS:
        sink = Target(kind, directory).sink(**({} if kind == "database" else {"partition_by": "carrier"}))
        flow = Flow(spark, directory, COLUMNS)
        trigger = "available-now" if once else "0 seconds"
        spec = QuerySpec(f"kills.{kind}", directory / "checkpoints" / kind, trigger, "append", flow.context)
        queries.append(sink.start(flow.rows(), spec))
    print("started", flush=True)
    for query in queries:
        query.awaitTermination()
    session.stop(context)


def feed(directory: Path, rounds: int) -> int:
    """Files of one more round; how many rows there are by now."""
    arriving = directory / "arriving"
    arriving.mkdir(exist_ok=True)
    first = rounds * _FILES_PER_ROUND
    for number in range(first, first + _FILES_PER_ROUND):
        flights = range(number * _ROWS_PER_FILE, (number + 1) * _ROWS_PER_FILE)
        rows = [json.dumps({"flight": flight, "carrier": ("UA", "AA", None)[flight % 3]}) for flight in flights]
        draft = directory / "draft.json"
        draft.write_text("\n".join(rows))
        draft.rename(arriving / f"{number:06}.json")
    return (first + _FILES_PER_ROUND) * _ROWS_PER_FILE


def start(directory: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", __spec__.name, "--writer", str(directory), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def kill_at_random(directory: Path, within_s: float) -> None:
    process = start(directory)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n", "the writer could not start"
    time.sleep(random.uniform(0, within_s))
    assert process.poll() is None, "the writer ended by itself"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def judge(directory: Path, rows: int) -> list[str]:
    """What is wrong, in sentences."""
    found: list[str] = []
    for kind in KINDS:
        flights: list[tuple[Any, ...]] = Target(kind, directory).read("flight")
        if flights != [(flight,) for flight in range(rows)]:
            distinct = len(set(flights))
            found.append(f"{kind}: {rows - distinct} rows are lost, {len(flights) - distinct} doubled")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--within", type=float, default=10.0, help="seconds after the start of the streams")
    parser.add_argument("--writer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        write_streams(options.writer, options.once)
        return 0
    with tempfile.TemporaryDirectory(prefix="sink-kills-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        rows = 0
        for kill in range(options.kills):
            rows = feed(directory, kill)
            kill_at_random(directory, options.within)
            print(f"kill {kill + 1} of {options.kills}, {rows} rows so far", flush=True)
        assert start(directory, "--once").wait() == 0
        wrong = judge(directory, rows)
    print("\n".join(wrong) or f"{options.kills} kills: {rows} rows are in each of {', '.join(KINDS)}, each once")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
