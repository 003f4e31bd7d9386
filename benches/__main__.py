"""`make bench`: Ottla and genuine Kafka in turn under the same load on this machine, medians and ratios."""

import argparse
import compileall
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.status import Status
from tests.support.broker_process import BrokerFailedError
from tests.support.genuine import ToolFailedError, kafka_libs
from tests.support.requirements import MissingProgramError

import ottla
from benches import machine
from benches.benchmarks import BENCHMARKS
from benches.contestants import CONTESTANTS, Contestant
from benches.generators import LoadFailedError
from benches.model import Bench, Benchmark
from benches.outcome import Outcome
from benches.report import show

_DATA_ROOT: Final = Path(__file__).resolve().parents[1] / ".cache" / "bench"


class Progress:
    """What is being done: a spinner on a terminal, a line each in a pipe; on stderr, so the table can be piped."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = self._console.status("") if self._console.is_terminal else None
        self._began = time.monotonic()
        if self._status:
            self._status.start()
        self.where = ""

    def say(self, text: str) -> None:
        """Show what begins now."""
        line = f"{time.monotonic() - self._began:5.0f} s  {self.where}  {text}"
        if self._status:
            self._status.update(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """Take the spinner away."""
        if self._status:
            self._status.stop()


def run(benchmark: Benchmark, contestants: list[Contestant], rounds: int, bench: Bench, progress: Progress) -> Outcome:
    """Measure all contestants in turn, `rounds` times: A B C A B C ...; a failure is noted and the rest goes on."""
    outcome = Outcome(benchmark)
    taking_part = [one for one in contestants if benchmark.contestants is None or one.name in benchmark.contestants]
    planned = min(rounds, benchmark.max_rounds)
    for number in range(planned):
        outcome.rounds.append({})
        for contestant in taking_part:
            progress.where = f"{benchmark.name} {number + 1}/{planned}"
            try:
                outcome.rounds[-1][contestant.name] = benchmark.measure(contestant, bench)
            except (BrokerFailedError, LoadFailedError, ToolFailedError) as error:
                outcome.failures.append(f"{contestant.title}, round {number + 1}: {error}")
                progress.say(f"{contestant.title} failed: {str(error).splitlines()[0]}")
    return outcome


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; ends the process with a sentence when it makes no sense."""
    names = [benchmark.name for benchmark in BENCHMARKS]
    families = sorted({name.partition("-")[0] for name in names} - set(names))
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small loads and one round: does it work, not how fast")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*names, *families],
        metavar="NAME",
        help=f"one of {', '.join(names)}; or all of a family: {', '.join(families)}",
    )
    parser.add_argument("--brokers", default=",".join(CONTESTANTS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--pairs", type=int, metavar="N", help="rounds of each benchmark (default: 3, quick: 1)")
    parser.add_argument("--snapshot-rows", type=int, metavar="N", help="rows of connect-snapshot (default: 2,000,000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.brokers.split(",") if name not in CONTESTANTS]
    if unknown:
        parser.error(f"no broker is named {unknown[0]!r}; there are {', '.join(CONTESTANTS)}")
    if given.pairs is not None and given.pairs < 1:
        parser.error("--pairs is at least 1")
    return given


def choose(names: list[str] | None) -> list[Benchmark]:
    """The benchmarks of these names or families, in their order; all without any."""
    if not names:
        return list(BENCHMARKS)
    return [one for one in BENCHMARKS if {one.name, one.name.partition("-")[0]} & set(names)]


def compile_package() -> None:
    """Ottla as `pip install` leaves it, with its bytecode: a start from an editable install would else compile all of
    it every time, where PYTHONDONTWRITEBYTECODE is set or nothing has run yet."""
    compileall.compile_dir(Path(ottla.__file__).parent, quiet=2)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Run; 0 when everything was measured, 1 when something failed. Goals missed are shown, not failures."""
    given = parse(arguments)
    chosen = choose(given.only)
    contestants = [CONTESTANTS[name] for name in given.brokers.split(",")]
    try:
        broker_cpus, load_cpus = machine.cores()
        kafka_libs()
    except (OSError, MissingProgramError, ToolFailedError) as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    compile_package()
    _DATA_ROOT.mkdir(parents=True, exist_ok=True)
    needed_gb = max(benchmark.disk_gb for benchmark in chosen) * (0.2 if given.quick else 1) + 1
    free_gb = shutil.disk_usage(_DATA_ROOT).free / 1e9
    if free_gb < needed_gb:
        print(f"make bench: needs {needed_gb:.0f} GB under {_DATA_ROOT}, {free_gb:.0f} GB are free", file=sys.stderr)
        return 1

    os.sched_setaffinity(0, load_cpus)  # the generators inherit it
    signal.signal(signal.SIGTERM, _interrupt)  # brokers and data are cleaned up however the run is ended
    progress = Progress()
    data = Path(tempfile.mkdtemp(prefix="run-", dir=_DATA_ROOT))  # other runs may go on beside this one
    bench = Bench(broker_cpus, data, given.quick, progress.say, given.snapshot_rows)
    rounds = given.pairs or (1 if given.quick else 3)
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "quick": given.quick,
        "benchmarks": {},
    }
    outcomes: list[Outcome] = []
    try:
        for benchmark in chosen:
            outcomes.append(run(benchmark, contestants, rounds, bench, progress))
            report["benchmarks"][benchmark.name] = outcomes[-1].as_json()
            if given.json:  # after each, so that an interrupted run leaves what it has
                given.json.parent.mkdir(parents=True, exist_ok=True)
                given.json.write_text(json.dumps(report, indent=1) + "\n")
    except KeyboardInterrupt:
        print("make bench: interrupted; this is what was measured until then", file=sys.stderr)
    finally:
        progress.stop()
        shutil.rmtree(data, ignore_errors=True)
    console = Console()
    show(console if console.is_terminal else Console(width=200), outcomes)
    return 1 if len(outcomes) < len(chosen) or any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
