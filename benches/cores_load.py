"""What `ottla serve --cores 2` gives beside one broker: `python -m benches.cores_load`.

In turn, as many pairs as are asked for: one broker, then a unit, each on an empty directory, under two producers
(librdkafka, acks=all) at once. Prints a line of JSON for each, and the medians of what the unit had of the one broker's
rate and processor time in the same pair. The producers share the machine's cores with the brokers.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from benches.generators import create_topic, librdkafka
from ottla.processes import free_ports

OTTLA: Final = str(Path(sys.executable).with_name("ottla"))
PARTITIONS: Final = 6
START_S: Final = 60.0


@contextmanager
def serving(cores: int, directory: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a broker or a unit, and its first process."""
    (port,) = free_ports(1)
    given = (f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={directory / 'data'}")
    command = [OTTLA, "serve", "--cores", str(cores), *(word for text in given for word in ("--override", text))]
    log = directory / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_S
        ready = "ready: rack" if cores > 1 else "ready: node"
        while ready not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it does not serve:\n{log.read_text()}")
            time.sleep(0.05)
        yield f"127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def cpu_s(process: psutil.Process) -> float:
    """What a process and its children have used so far."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def measure(cores: int, records: int, size: int, producers: int) -> dict[str, float]:
    """One run: megabytes a second of all producers together, and the brokers' processor time for a gigabyte."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="ottla-cores-", dir=Path(".cache")))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        bootstrap, process = stack.enter_context(serving(cores, directory))
        create_topic(bootstrap, "load", PARTITIONS)
        librdkafka("produce", bootstrap, "load", records=records // 10, size=size)  # warms up
        before = cpu_s(process)
        with ThreadPoolExecutor(producers) as pool:
            runs = [
                pool.submit(librdkafka, "produce", bootstrap, "load", records=records // producers, size=size)
                for _ in range(producers)
            ]
            rate = sum(each.result()["mb_per_s"] for each in runs)
        used_s = cpu_s(process) - before
    return {"cores": cores, "mb_per_s": round(rate, 1), "cpu_s_per_gb": round(used_s * 1e9 / (records * size), 2)}


def main() -> None:
    """Run the pairs."""
    parser = argparse.ArgumentParser(prog="python -m benches.cores_load", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--producers", type=int, default=2)
    given = parser.parse_args()
    ratios: list[tuple[float, float]] = []
    for _ in range(given.pairs):
        one, two = (measure(cores, given.records, given.size, given.producers) for cores in (1, 2))
        for each in (one, two):
            print(json.dumps(each), flush=True)
        ratios.append((two["mb_per_s"] / one["mb_per_s"], two["cpu_s_per_gb"] / one["cpu_s_per_gb"]))
    rate, cpu = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(json.dumps({"rate_ratio": round(rate, 2), "cpu_ratio": round(cpu, 2)}))


if __name__ == "__main__":
    main()
