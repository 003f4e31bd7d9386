"""How long a replay takes, as far as that can be known."""

from pathlib import Path

from tests.support.checkpoints import make_run

from ottla.pipeline.estimate import busy_rate, estimate, rates
from ottla.pipeline.progress import Figures, append

READS = {"hourly": ["orders", "prices"], "copied": ["orders"], "chained": ["copies"]}
WAITING = {"orders": 60_000, "prices": 30_000}


def figures(rate: float, lag: int | None, flow: str = "hourly") -> Figures:
    return Figures(flow, at=1.0, rate=rate, lag_records=lag)


def test_the_slowest_flow_decides() -> None:
    found = estimate(READS, WAITING, {"hourly": 1_000.0, "copied": 20_000.0})
    assert (found.records, found.seconds, found.slowest) == (90_000, 90.0, "hourly")
    assert (found.flows["copied"].records, found.flows["copied"].seconds) == (60_000, 3.0)
    assert "chained" not in found.flows  # what it reads, the replay writes first


def test_without_a_rate_only_the_records_are_known() -> None:
    found = estimate(READS, WAITING, {"copied": 20_000.0})
    assert (found.records, found.seconds, found.slowest) == (90_000, None, None)
    nothing = estimate(READS, {"orders": 0, "prices": 0}, {})
    assert (nothing.records, nothing.seconds, nothing.slowest) == (0, 0.0, None)


def test_only_moments_with_enough_to_read_say_how_fast_a_flow_is() -> None:
    caught_up = [figures(10.0, 0), figures(12.0, 3), figures(0.0, 0), figures(11.0, None)]
    assert busy_rate(caught_up) is None
    assert busy_rate([*caught_up, figures(900.0, 5_000), figures(1_000.0, 4_000), figures(3_000.0, 3_000)]) == 1_000.0


def test_all_runs_of_the_job_are_looked_at(tmp_path: Path) -> None:
    for name in ("flights", "v2"):
        run = make_run(tmp_path, name)
        append(run.progress, figures(100.0 if name == "v2" else 300.0, 9_999))
    assert rates(tmp_path, "flight-delays") == {"hourly": 200.0}
    assert rates(tmp_path, "sales") == {}
