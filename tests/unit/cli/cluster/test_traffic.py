"""What the traffic of `ottla cluster demo` remembers, and when it is content."""

from dataclasses import asdict

import pytest

from ottla.cli.cluster.demo import sentence
from ottla.cli.cluster.traffic import Record, Seen, Verdict, judge
from ottla.client.partition import Partition

P0, P1 = Partition("t", 0), Partition("t", 1)


def seen(*found: tuple[float, Partition]) -> Seen:
    return Seen([(partition, number) for number, (_, partition) in enumerate(found)], [at for at, _ in found])


def test_a_pause_is_that_of_the_partition_that_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.cluster.traffic.time.monotonic", lambda: 12.0)
    found = seen((1.0, P0), (2.0, P0), (9.0, P1), (10.0, P0), (11.0, P0))
    assert found.longest_pause_s(2.5) == 7.5  # of P0, up to 10
    assert found.longest_pause_s(8.5) == 3.0  # of P1, since 9
    assert found.longest_pause_s(11.5) == 0.5
    assert seen().longest_pause_s(10.0) == 2.0  # nothing ever came


def test_the_first_record_of_a_partition_after_a_kill() -> None:
    found = seen((1.0, P0), (2.0, P1), (3.0, P0), (4.0, P1))
    assert found.first_after(1.5, [P0]) == 3.0
    assert found.first_after(1.5, [P0, P1]) == 2.0
    assert found.first_after(3.5, [P0]) is None


A, B, C = ((P0, 0), (P0, 1), (P1, 0))


def test_everything_once_in_order_and_read_is_good() -> None:
    verdict = judge({A, B, C}, 0, read=[C, A, B, B], log=[A, C, B])  # a group may read twice
    assert verdict == Verdict(3, 0, 0, 0, 0, 0)
    assert verdict.is_good


@pytest.mark.parametrize(
    ("what", "refused", "read", "log"),
    [
        ("refused", 1, [A, B, C], [A, B, C]),
        ("missing_in_log", 0, [A, B, C], [A, C]),
        ("missing_at_group", 0, [A, B], [A, B, C]),
        ("doubled_in_log", 0, [A, B, C], [A, A, B, C]),
        ("disordered", 0, [A, B, C], [B, A, C]),
    ],
)
def test_each_kind_of_loss_is_found(what: str, refused: int, read: list[Record], log: list[Record]) -> None:
    verdict = judge({A, B, C}, refused, read, log)
    assert not verdict.is_good
    assert {name for name, count in asdict(verdict).items() if count} == {"acknowledged", what}
    assert f"1 {what.replace('_', ' ')}" in sentence(verdict)
