"""What the traffic of `ottla cluster demo` remembers, and when it is content."""

import dataclasses

import pytest

from ottla.cli.cluster_traffic import Seen, Verdict
from ottla.cli.partition import Partition

P0, P1 = Partition("t", 0), Partition("t", 1)


def seen(*found: tuple[float, Partition]) -> Seen:
    return Seen([(partition, number) for number, (_, partition) in enumerate(found)], [at for at, _ in found])


def test_a_pause_is_that_of_the_partition_that_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.cluster_traffic.time.monotonic", lambda: 12.0)
    found = seen((1.0, P0), (2.0, P0), (9.0, P1), (10.0, P0), (11.0, P0))
    assert found.longest_pause_s(2.5) == 7.5  # of P0, up to 10
    assert found.longest_pause_s(8.5) == 3.0  # of P1, since 9
    assert found.longest_pause_s(11.5) == 0.5


def test_the_first_record_of_a_partition_after_a_kill() -> None:
    found = seen((1.0, P0), (2.0, P1), (3.0, P0), (4.0, P1))
    assert found.first_after(1.5, [P0]) == 3.0
    assert found.first_after(1.5, [P0, P1]) == 2.0
    assert found.first_after(3.5, [P0]) is None


def test_only_what_is_complete_once_and_in_order_is_good() -> None:
    good = Verdict(10, 0, 0, 0, 0, 0)
    assert good.is_good
    for name in ("refused", "missing_in_log", "missing_at_group", "doubled_in_log", "disordered"):
        assert not dataclasses.replace(good, **{name: 1}).is_good
