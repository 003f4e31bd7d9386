"""Share groups while brokers and members are killed, and brokers that treat them badly, each found out."""

import re
from pathlib import Path

import pytest

from tests.chaos.broken import SHARE_CASES, Breakage, BrokenOttla
from tests.chaos.plan import Fault
from tests.chaos.run import BROKER_PROPERTIES
from tests.chaos.share_run import SHARE_PROPERTIES, ShareRun
from tests.chaos.target import OneBroker
from tests.support.ottla_process import OttlaProcess

PROPERTIES = {**BROKER_PROPERTIES, **SHARE_PROPERTIES}
README = Path(__file__).with_name("README.md")


def test_the_readme_names_what_shows_each_breakage_of_share_groups() -> None:
    table = README.read_text().partition("## Share groups")[2].partition("## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| ([^|]+) \|", table, re.MULTILINE)
    known = {(one.value, str(case.seed), case.finds.value) for one, case in SHARE_CASES.items()}
    assert {(name, seed, found.strip()) for name, seed, found in rows} == known


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_members_of_a_share_group_see_nothing_wrong_while_all_is_being_killed(tmp_path: Path) -> None:
    broker = OttlaProcess(tmp_path / "broker", properties=PROPERTIES)
    try:
        run = ShareRun(OneBroker(broker), seed=3, seconds=20, directory=tmp_path, faults=tuple(Fault))
        verdict = run()
    finally:
        broker.remove()
    assert verdict.is_sound, "\n".join(verdict.lines())
    assert verdict.sent > 200
    assert verdict.deliveries > verdict.sent


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("breakage", list(SHARE_CASES), ids=lambda breakage: breakage.value)
def test_a_broker_that_treats_share_groups_badly_is_found_out(tmp_path: Path, breakage: Breakage) -> None:
    case = SHARE_CASES[breakage]
    broker = BrokenOttla(breakage, tmp_path / "broker", properties=PROPERTIES)
    try:
        run = ShareRun(OneBroker(broker), seed=case.seed, seconds=case.seconds, directory=tmp_path, faults=case.faults)
        verdict = run()
    finally:
        broker.remove()
    assert case.finds in {anomaly.kind for anomaly in verdict.anomalies}, "\n".join(verdict.lines())
