"""A quarter of a minute of chaos over three nodes, which Ottla stands; in `make soak` minutes, and broken clusters."""

import os
import re
from pathlib import Path

import pytest

from tests.chaos.cluster_broken import CLUSTER_CASES, ClusterBreakage
from tests.chaos.cluster_nodes import Makeup
from tests.chaos.cluster_plan import ClusterFault
from tests.chaos.cluster_run import ALL_FAULTS, cluster_run, cluster_target, possible
from tests.chaos.history import Outcome
from tests.chaos.plan import Fault
from tests.chaos.run import MIXED, RELAYS, WORKLOADS, Verdict, Workload, tell
from tests.chaos.share_run import SHARE_PROPERTIES, ShareRun

README = Path(__file__).with_name("README.md")
LOOPBACK = os.geteuid() != 0
"""Without root there are no namespaces: what needs none is tried all the same."""
SHORT = (
    ClusterFault.KILL,
    ClusterFault.PAUSE,
    ClusterFault.CUT_FROM_CLUSTER,
    ClusterFault.CUT_FROM_ZOOKEEPER,
    ClusterFault.CUT_CONTROLLER,
    ClusterFault.DEAF,
    Fault.KILL_WORKER,
)


def told(verdict: Verdict) -> str:
    """The verdict, for the message of a failure."""
    lines: list[str] = []
    tell(verdict, lines.append)
    return "\n".join(lines)


def successes(verdict: Verdict, what: str) -> int:
    return verdict.outcomes().get((what, Outcome.OK.value), 0)


def test_the_readme_names_the_seeds_that_show_each_broken_cluster() -> None:
    table = README.read_text().partition("## Several brokers")[2]
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", table, re.MULTILINE)
    assert {name: int(seed) for name, seed in rows} == {
        breakage.value: case.seed for breakage, case in CLUSTER_CASES.items()
    }


@pytest.mark.timeout(300)
def test_clients_see_nothing_wrong_while_brokers_are_killed_and_cut_off(tmp_path: Path) -> None:
    verdict = cluster_run(
        tmp_path / "run",
        MIXED.of("python"),
        seed=3,
        seconds=15,
        faults=SHORT,
        loopback=LOOPBACK,
        least_strikes=3,
    )
    assert verdict.is_sound, told(verdict)
    assert successes(verdict, "txn") > 20, told(verdict)
    assert successes(verdict, "audit") == 1, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("makeup", list(Makeup), ids=lambda makeup: str(makeup.value))
@pytest.mark.parametrize("workload", [MIXED, RELAYS], ids=lambda workload: str(workload.name))
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_clients_see_nothing_wrong_whatever_breaks(
    tmp_path: Path, request: pytest.FixtureRequest, makeup: Makeup, workload: Workload, group_protocol: str
) -> None:
    verdict = cluster_run(
        tmp_path / "run",
        workload,
        seed=int(request.config.getoption("randomly_seed", default=1)),
        seconds=60,
        faults=ALL_FAULTS,
        group_protocol=group_protocol,
        makeup=makeup,
        least_strikes=8,
    )
    assert verdict.is_sound, told(verdict)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_members_of_a_share_group_see_nothing_wrong_while_nodes_lose_their_page_caches(tmp_path: Path) -> None:
    with cluster_target(tmp_path, SHARE_PROPERTIES, breakage=ClusterBreakage.LOST_CACHE, loopback=LOOPBACK) as cluster:
        faults = possible(ALL_FAULTS, loopback=LOOPBACK)
        verdict = ShareRun(cluster, seed=3, seconds=60, directory=tmp_path, faults=faults)()
    assert verdict.is_sound, "\n".join(verdict.lines())
    assert verdict.sent > 200


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("breakage", list(ClusterBreakage), ids=lambda breakage: str(breakage.value))
def test_a_broken_cluster_is_found_out(tmp_path: Path, breakage: ClusterBreakage) -> None:
    case = CLUSTER_CASES[breakage]
    verdict = cluster_run(
        tmp_path / "run",
        WORKLOADS[case.workload].of("python"),
        seed=case.seed,
        seconds=case.seconds,
        faults=case.faults,
        makeup=Makeup.ZOOKEEPER if case.on_zookeeper else Makeup.QUORUM,
        breakage=breakage,
        least_strikes=3,
        properties=case.properties,
    )
    found = {anomaly.kind for anomaly in verdict.anomalies}
    if case.finds:
        assert found & case.finds, told(verdict)
    else:
        assert verdict.is_sound, told(verdict)
