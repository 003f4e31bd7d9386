"""Forty seconds of chaos, which Ottla stands, and brokers broken on purpose, which are found out.

Its seed is that of the whole test run (`-p randomly_seed=...`): each tries another one, `make chaos` many.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.broken import CASES, Breakage, BrokenOttla
from tests.chaos.history import Outcome
from tests.chaos.run import BROKER_PROPERTIES, MIXED, RELAYS, WORKLOADS, Run, Verdict, tell
from tests.chaos.target import OneBroker
from tests.support.broker_process import BrokerProcess
from tests.support.ottla_process import OttlaProcess

README = Path(__file__).with_name("README.md")
QUICKLY_FOUND = {Breakage.NONE, Breakage.EARLY_ACKNOWLEDGEMENT, Breakage.READS_UNCOMMITTED}
"""By `make test`; the others by `make soak`."""


@contextmanager
def unstarted(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker for a run to start; dead in the end, whatever happens. Its files stay with the history."""
    try:
        yield broker
    finally:
        broker.remove()


def told(verdict: Verdict) -> str:
    """The verdict, for the message of a failure."""
    lines: list[str] = []
    tell(verdict, lines.append)
    return "\n".join(lines)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("randomly_seed", default=1))


def successes(verdict: Verdict, what: str) -> int:
    return verdict.outcomes().get((what, Outcome.OK.value), 0)


def test_the_readme_names_the_seeds_that_show_each_breakage() -> None:
    table = README.read_text().partition("## That it can fail")[2].partition("## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)`[^|]*\| (\d+) \| ([^|:]+)", table, re.MULTILINE)
    told = {name: (int(seed), set(found.strip().split(", ")) - {"nothing"}) for name, seed, found in rows}
    known = {breakage.value: (case.seed, {kind.value for kind in case.finds}) for breakage, case in CASES.items()}
    assert told == known


@pytest.mark.timeout(400)
@pytest.mark.soak  # in `make test` every input is relayed while all is being killed: the next test
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_clients_see_nothing_wrong_while_all_is_being_killed(tmp_path: Path, seed: int, group_protocol: str) -> None:
    with unstarted(OttlaProcess(tmp_path / "broker", properties=BROKER_PROPERTIES)) as broker:
        run = Run(
            OneBroker(broker),
            MIXED,
            seed=seed,
            seconds=20,
            directory=tmp_path,
            group_protocol=group_protocol,
            least_strikes=5,
        )
        verdict = run()
    assert verdict.is_sound, told(verdict)
    assert successes(verdict, "txn") > 50, told(verdict)
    assert successes(verdict, "audit") == 2, told(verdict)


@pytest.mark.timeout(400)
def test_every_input_is_relayed_exactly_once_while_all_is_being_killed(tmp_path: Path, seed: int) -> None:
    with unstarted(OttlaProcess(tmp_path / "broker", properties=BROKER_PROPERTIES)) as broker:
        verdict = Run(OneBroker(broker), RELAYS, seed=seed, seconds=20, directory=tmp_path, least_strikes=5)()
    assert verdict.is_sound, told(verdict)
    assert successes(verdict, "relay") > 50, told(verdict)
    assert successes(verdict, "send") > 50, told(verdict)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "breakage",
    [pytest.param(each, id=each.value, marks=[] if each in QUICKLY_FOUND else pytest.mark.soak) for each in CASES],
)
def test_a_broken_broker_is_found_out(tmp_path: Path, breakage: Breakage) -> None:
    case = CASES[breakage]
    workload = WORKLOADS[case.workload].of("python")
    with unstarted(BrokenOttla(breakage, tmp_path / "broker", properties=BROKER_PROPERTIES)) as broker:
        run = Run(
            OneBroker(broker),
            workload,
            seed=case.seed,
            seconds=case.seconds,
            directory=tmp_path,
            faults=case.faults,
            least_strikes=3,
        )
        verdict = run()
    assert not verdict.troubles, told(verdict)
    found = {anomaly.kind for anomaly in verdict.anomalies}
    if case.finds:
        assert found >= case.finds, told(verdict)
    else:
        assert not found, told(verdict)
