"""The unit of a job, and the page about it: commands, bounds and fields are those of the code."""

import re
from configparser import ConfigParser
from dataclasses import fields

import pytest
from tools.docs.commands import check
from tools.docs.markdown import ROOT

from ottla.cli.pipeline.commands import VERBS
from ottla.pipeline import watch
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FlowRecord, RunRecord

PAGE = (ROOT / "docs" / "running-jobs.md").read_text(encoding="utf-8")


@pytest.fixture
def unit() -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.read(ROOT / "deploy" / "ottla-job@.service")
    return found


def test_systemd_waits_longer_than_a_run_takes_to_stop(unit: ConfigParser) -> None:
    stops_within_s = watch._FINISH_WITHIN_S + watch._LAST_EVENTS_WITHIN_S + watch._LATE_ROWS_WITHIN_S
    assert int(unit["Service"]["TimeoutStopSec"]) >= stops_within_s + 30
    assert f"gives its micro-batches {watch._FINISH_WITHIN_S:.0f} s" in PAGE
    assert f"`TimeoutStopSec={unit['Service']['TimeoutStopSec']}`" in PAGE


def test_the_unit_runs_a_command_that_exists(unit: ConfigParser) -> None:
    assert check(unit["Service"]["ExecStart"]) == 1
    (scheduled,) = re.findall(r"^30 2 \* \* \*  ottla  (.*)$", PAGE, re.MULTILINE)
    assert check(scheduled) == 1
    assert "--until" in scheduled


def test_what_alarms_watch_is_in_the_status() -> None:
    table = PAGE.partition("## Alarms")[2].partition("```")[0]
    known = {field.name for kind in (Figures, FlowRecord, RunRecord) for field in fields(kind)} | {
        "figures",
        "late_changes",
    }
    named = set(re.findall(r"(?<!>)\.([a-z]+(?:_[a-z]+)*)\b", " ".join(re.findall(r"`(\.[^`]+)`", table))))
    assert {"state", "error", "lag_s", "rejected", "late", "expectations", "at"} <= named
    assert not named - known


def test_every_command_for_jobs_is_on_the_page_of_commands() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition("\n## pipeline\n")[2].partition("\n## ")[0]
    assert [verb for verb in VERBS if not re.search(rf"`{verb}\b", section)] == []
