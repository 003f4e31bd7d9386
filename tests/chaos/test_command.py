"""Which workload a run of `python -m tests.chaos` has."""

import pytest

from tests.chaos.__main__ import breakage_of, parse, turn
from tests.chaos.cluster_broken import ClusterBreakage
from tests.chaos.cluster_nodes import Makeup
from tests.chaos.cluster_plan import OF_CONTROLLERS, OF_WORKERS, OF_ZOOKEEPER, ClusterFault
from tests.chaos.cluster_run import possible


def turns(*words: str) -> list[tuple[str, str]]:
    return [turn(parse(words), seed) for seed in range(6)]


def test_all_workloads_take_turns_with_both_protocols() -> None:
    names = ("mixed", "relay", "share")
    assert turns() == [*((name, "classic") for name in names), *((name, "consumer") for name in names)]
    assert turns("--brokers", "3") == turns()


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "genuine"),
        ("--clients", "python"),
        ("--broken", "no-sync"),
        ("--brokers", "3", "--mixed", "1"),
        ("--brokers", "3", "--broken", "lone-controller"),
    ],
    ids=lambda words: words[-1],
)
def test_share_groups_are_left_out_where_there_are_none(words: tuple[str, ...]) -> None:
    assert {name for name, _ in turns(*words)} == {"mixed", "relay"}


def test_a_workload_that_is_named_is_the_only_one() -> None:
    assert {name for name, _ in turns("--workload", "relay")} == {"relay"}
    assert {name for name, _ in turns("--broken", "short-locks")} == {"share"}


def test_share_groups_of_genuine_kafka_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """They would be tried on Ottla, unnoticed."""
    with pytest.raises(SystemExit):
        parse(["--workload", "share", "--target", "genuine"])
    assert "--target ottla alone" in capsys.readouterr().err


def test_what_needs_a_network_is_left_out_on_loopback() -> None:
    faults = parse(["--brokers", "3"]).faults
    assert ClusterFault.SPLIT in possible(faults, loopback=False)
    left = possible(faults, loopback=True)
    assert ClusterFault.SPLIT not in left
    assert set(left) >= {ClusterFault.KILL, *OF_WORKERS}


def test_each_kind_of_cluster_has_its_own_faults() -> None:
    faults = parse(["--brokers", "3"]).faults
    in_a_quorum, on_zookeeper = (
        set(possible(faults, loopback=False, makeup=makeup)) for makeup in (Makeup.QUORUM, Makeup.ZOOKEEPER)
    )
    assert in_a_quorum - on_zookeeper == {*OF_CONTROLLERS, ClusterFault.CHANGE_VOTERS}
    assert on_zookeeper - in_a_quorum == set(OF_ZOOKEEPER)


@pytest.mark.parametrize(
    ("words", "makeup", "lost"),
    [
        ((), Makeup.QUORUM, {False, True}),
        (("--target", "ottla"), Makeup.QUORUM, {False}),
        (("--target", "ottla-lost-cache"), Makeup.QUORUM, {True}),
        (("--zookeeper",), Makeup.ZOOKEEPER, {False}),
        (("--mixed", "2"), Makeup.TWO_GENUINE, {False}),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_clusters_of_the_command(words: tuple[str, ...], makeup: Makeup, lost: set[bool]) -> None:
    arguments = parse(["--brokers", "3", *words])
    assert arguments.makeup is makeup
    assert {breakage_of(arguments, seed) is ClusterBreakage.LOST_CACHE for seed in range(12)} == lost


@pytest.mark.parametrize(
    "words", [("--mixed", "1"), ("--brokers", "3", "--mixed", "1", "--broken", "none"), ("--zookeeper",)], ids=" ".join
)
def test_what_does_not_fit_together_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
