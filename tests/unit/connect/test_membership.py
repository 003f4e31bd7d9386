"""Who is a worker, as the group's coordinator tells it."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.membership import Group


def group(*members: tuple[str, bool]) -> Any:
    """A leader's view of a group: ids, and who has the partition."""
    found = [
        SimpleNamespace(client_id=name, assignment=SimpleNamespace(topic_partitions=["p"] if leads else []))
        for name, leads in members
    ]
    described = SimpleNamespace(result=lambda _seconds: SimpleNamespace(members=found))
    asked: Any = Group.__new__(Group)
    asked._worker, asked._group, asked._asked_at, asked._members = "here:1", "g", float("-inf"), None
    asked._admin = SimpleNamespace(describe_consumer_groups=lambda _groups, **_: {"g": described})
    return asked


def test_the_leader_knows_all_workers() -> None:
    assert group(("here:1", True), ("there:1", False)).members() == ["here:1", "there:1"]
    assert group(("here:1", False), ("there:1", True)).members() is None  # this one was away


def test_a_consumer_of_somebody_else_is_no_worker() -> None:
    assert group(("here:1", True), ("rdkafka", False), ("rdkafka", False)).members() == ["here:1"]


@pytest.mark.parametrize("twice", ["here:1", "there:1"])
def test_two_workers_with_one_address_are_given_no_tasks(twice: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert group(("here:1", True), ("there:1", False), (twice, False)).members() is None
    assert f"two workers call themselves {twice}" in caplog.text
    assert "rest.advertised.host.name" in caplog.text
