"""The arithmetic of the benchmarks."""

import os
import signal
from pathlib import Path

import pytest
from benches import __main__ as program
from benches.__main__ import choose, parse, run
from benches.benchmarks import BENCHMARKS
from benches.contestants import CONTESTANTS, Contestant
from benches.generators import LoadFailedError, steady_rate
from benches.model import Bench, Benchmark, Figure, Goal
from benches.outcome import Outcome
from benches.report import number, show
from rich.console import Console

RATE = Figure("rate", "rate", "records/s", "higher", {"ottla": Goal("ratio", 1.3)})
TIME = Figure("time", "time", "s", "lower", {"ottla": Goal("value", 0.5)})


def outcome(*rounds: dict[str, tuple[float, float]]) -> Outcome:
    benchmark = Benchmark("made-up", "Made up", (RATE, TIME), lambda *_: {}, disk_gb=0)
    return Outcome(
        benchmark, [{name: {"rate": rate, "time": time} for name, (rate, time) in one.items()} for one in rounds]
    )


def test_ratios_are_taken_pair_by_pair() -> None:
    # The machine was three times faster in the second round; the ratio of the medians would be 200 / 300.
    one = outcome(
        {"ottla": (200, 0.4), "kafka": (100, 4)},
        {"ottla": (600, 0.4), "kafka": (300, 4)},
        {"ottla": (150, 0.6), "kafka": (300, 4)},
    )
    assert one.median("ottla", "rate") == 200
    assert one.median("kafka", "rate") == 300
    assert one.ratio("ottla", "rate") == 2.0
    assert one.ratio("kafka", "rate") is None


def test_goals_are_ratios_or_values() -> None:
    one = outcome({"ottla": (129, 0.4), "kafka": (100, 4)})
    assert one.reached("ottla", RATE) is False
    assert one.reached("ottla", TIME) is True
    assert one.reached("kafka", RATE) is None
    alone = outcome({"ottla": (129, 0.6)})
    assert alone.reached("ottla", RATE) is None, "nothing to compare with"
    assert alone.reached("ottla", TIME) is False


def test_a_round_that_failed_for_one_is_no_pair() -> None:
    one = outcome({"ottla": (500, 1)}, {"ottla": (200, 1), "kafka": (100, 1)})
    assert one.ratio("ottla", "rate") == 2.0
    assert one.as_json()["figures"]["rate"]["contestants"]["ottla"]["samples"] == [500, 200]


def test_contestants_alternate_and_failures_are_noted(tmp_path: object) -> None:
    order: list[str] = []

    def measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
        order.append(contestant.name)
        if len(order) == 3:
            raise LoadFailedError("the third fails")
        return {"rate": 1.0, "time": 1.0}

    benchmark = Benchmark("made-up", "Made up", (RATE, TIME), measure, disk_gb=0, max_rounds=2)

    class Silent:
        where = ""

        def say(self, text: str) -> None:
            order.append(text)

    order.clear()
    silent = Silent()
    result = run(
        benchmark,
        [CONTESTANTS["ottla"], CONTESTANTS["kafka"]],
        9,
        Bench((0,), tmp_path, True, silent.say),  # type: ignore[arg-type]  # no directory is touched
        silent,  # type: ignore[arg-type]  # all that `run` asks of a Progress
    )
    assert [entry for entry in order if entry in CONTESTANTS] == ["ottla", "kafka", "ottla", "kafka"]
    assert [sorted(one) for one in result.rounds] == [["kafka", "ottla"], ["kafka"]]
    assert result.failures == ["Ottla, round 2: the third fails"]


def test_a_run_removes_only_its_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
        seen.append(bench.data_root)
        (bench.data_root / "segment").touch()
        return {"rate": 1.0, "time": 1.0}

    benchmark = Benchmark("made-up", "Made up", (RATE, TIME), measure, disk_gb=0)
    monkeypatch.setattr(program, "_DATA_ROOT", tmp_path)
    monkeypatch.setattr(program, "choose", lambda only: [benchmark])
    monkeypatch.setattr(program, "kafka_libs", list)
    monkeypatch.setattr(program, "compile_package", lambda: None)
    other = tmp_path / "run-of-another"
    other.mkdir()
    cores, handler = os.sched_getaffinity(0), signal.getsignal(signal.SIGTERM)
    try:
        assert program.main(["--quick", "--brokers", "ottla", "--pairs", "1"]) == 0
    finally:
        os.sched_setaffinity(0, cores)
        signal.signal(signal.SIGTERM, handler)
    assert tmp_path not in seen
    assert list(tmp_path.iterdir()) == [other]


def test_the_first_window_is_left_out_of_the_rate() -> None:
    # 5 s at 10/s, then 10 s at 100/s
    assert steady_rate([(50, 10.0), (500, 100.0), (1050, 70.0)]) == pytest.approx(100.0)
    assert steady_rate([(50, 10.0), (1050, 70.0)]) == 70.0
    assert steady_rate([(1050, 70.0)]) == 70.0


def test_tables_are_plain_in_a_pipe() -> None:
    one = outcome({"ottla": (150, 0.6), "kafka": (100, 4)})
    one.failures.append("Kafka, round 2: [oops]")
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        show(console, [one])
    text = capture.get()
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines()]
    assert ["rate", "records/s", "150.0", "1.50", "x", ">=", "1.3", "x", "reached", "100.0"] in rows
    assert ["time", "s", "0.6", "0.15", "x", "<=", "0.5", "missed", "4"] in rows
    assert "failed: Kafka, round 2: [oops]" in text


def test_numbers_keep_the_digits_that_mean_something() -> None:
    assert [number(value) for value in (123456.7, 123.4567, 12.345, 0.012345)] == ["123,457", "123.5", "12.3", "0.0123"]


def test_every_benchmark_is_named_once_and_its_goals_name_contestants() -> None:
    assert len({benchmark.name for benchmark in BENCHMARKS}) == len(BENCHMARKS)
    for benchmark in BENCHMARKS:
        for figure in benchmark.figures:
            assert set(figure.goals) <= set(CONTESTANTS), f"{benchmark.name}.{figure.name}"


@pytest.mark.parametrize("wrong", [["--brokers", "kafak"], ["--only", "nothing"], ["--pairs", "0"]])
def test_a_wrong_command_line_ends_with_a_sentence(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(wrong)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_benchmarks_are_chosen_by_name_or_family() -> None:
    assert [one.name for one in choose(["cluster"])] == [
        "cluster-start",
        "cluster-idle",
        "cluster-load",
        "cluster-failover",
        "cluster-leader",
        "cluster-controller",
        "cluster-many",
    ]
    assert [one.name for one in choose(["start"])] == ["start"]
    assert choose(None) == list(BENCHMARKS)
    assert parse(["--only", "growth"]).only == ["growth"]
