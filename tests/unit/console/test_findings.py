"""What the overview finds, in sentences with a next step."""

from ottla.admin import Address, Broker, Cluster, LogDirectory, Partition, PartitionState
from ottla.console.findings import Severity, findings


def cluster(*states: tuple[int | None, tuple[int, ...], tuple[int, ...]], brokers: int = 3) -> Cluster:
    return Cluster(
        1,
        {number: Broker(number, Address("h", 9092), None) for number in range(1, brokers + 1)},
        {Partition("t", number): PartitionState(*state) for number, state in enumerate(states)},
    )


def test_a_cluster_in_order() -> None:
    (found,) = findings(cluster((1, (1, 2), (1, 2))), {})
    assert found.severity is Severity.GOOD


def test_a_broker_that_is_gone_and_what_it_takes_along() -> None:
    found = findings(cluster((None, (3,), (3,)), (1, (1, 3), (1,)), brokers=2), {"t": 2})
    assert [each.severity for each in found] == [Severity.BAD, Severity.BAD, Severity.WARNING]
    assert found[0].text == "1 partition without a leader can be neither read nor written."
    assert found[0].next_step == "Start the brokers that have replicas: 3."
    assert "acks=all are refused" in found[1].text
    assert found[2].text == "Broker 3 should have replicas, but is not there."


def test_a_follower_that_lags() -> None:
    (found,) = findings(cluster((1, (1, 2), (1,))), {"t": 1})
    assert found.severity is Severity.WARNING
    assert "not in sync" in found.text


def test_no_controller() -> None:
    found = findings(Cluster(None, cluster().brokers, {}), {})
    assert found[0].text == "The cluster has no controller."


def test_disks_that_are_nearly_full_and_disks_that_failed() -> None:
    full = LogDirectory("/full", 1_000_000, 50_000, 3, 900_000, 0, None)
    roomy = LogDirectory("/roomy", 1_000_000, 100_000, 3, 900_000, 0, None)
    unknown = LogDirectory("/unknown", None, None, 3, 900_000, 0, None)
    failed = LogDirectory("/failed", None, None, 0, 0, 0, "input/output error")
    found = findings(cluster((1, (1, 2), (1,))), {}, {1: [full, roomy, unknown], 2: [failed]})
    assert [each.severity for each in found] == [Severity.BAD, Severity.WARNING, Severity.WARNING]
    assert found[0].text == "Broker 2 does not use its log directory /failed: input/output error."
    assert found[2].text == "Broker 1 has 50.0 kB of 1.0 MB left on the disk of /full."
