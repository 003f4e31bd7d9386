"""Who is a worker, as the group's coordinator tells it."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.runtime.membership import Group


def group(*members: tuple[str, bool]) -> Any:
    """A leader's view of a group: ids, and who has the partition."""
    found = [
        SimpleNamespace(client_id=name, assignment=SimpleNamespace(topic_partitions=["p"] if leads else []))
        for name, leads in members
    ]
    described = SimpleNamespace(result=lambda _seconds: SimpleNamespace(members=found))
    asked: Any = Group.__new__(Group)
    asked._worker, asked._group, asked._asked_at, asked._members = "here:1", "g", float("-inf"), None
    asked._leads = any(name == "here:1" and leads for name, leads in members)
    asked._joined, asked._stands_in, asked._gone_ones, asked._rivals = True, False, frozenset(), frozenset()
    asked._topic = "configs"
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


def test_workers_of_one_group_with_different_topics_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each led by its own topic, and neither assigned a task, in silence."""
    asked = group(("here:1", True), ("there:1", True))
    with caplog.at_level(logging.ERROR):
        assert asked.members() is None
        asked._asked_at = float("-inf")
        assert asked.members() is None
    (line,) = caplog.messages
    assert line.startswith("here:1 and there:1 lead group g by different topics of configurations")
    assert "config.storage.topic=configs" in line


def test_a_worker_that_is_gone_is_no_member_although_its_group_has_not_missed_it_yet() -> None:
    asked = group(("here:1", True), ("there:1", False))
    asked.note_gone(frozenset({"there:1"}), "here:1", {"here:1", "there:1"})
    assert asked.members() == ["here:1"]
    asked.note_gone(frozenset(), "here:1", {"here:1"})
    assert asked.members() == ["here:1", "there:1"], "it is back"


def test_the_first_of_those_that_are_left_stands_in_for_a_leader_that_is_gone() -> None:
    asked = group(("a-leader:1", True), ("here:1", False), ("there:1", False))
    workers = {"a-leader:1", "here:1", "there:1"}
    assert not asked.leading
    asked.note_gone(frozenset({"a-leader:1"}), "a-leader:1", workers)
    assert asked.leading
    assert asked.members() == ["here:1", "there:1"]
    asked.note_gone(frozenset({"a-leader:1"}), "here:1", {"here:1", "there:1"})
    assert asked.members() == ["here:1", "there:1"], "also when it has assigned tasks"
    asked.note_gone(frozenset(), "here:1", {"here:1", "there:1"})
    assert asked.members() is None, "the leader is back, and has the partition still"
    assert not asked.leading


def test_another_worker_stands_in_if_it_comes_first() -> None:
    asked = group(("a-leader:1", True), ("b:1", False), ("here:1", False))
    asked.note_gone(frozenset({"a-leader:1"}), "a-leader:1", {"a-leader:1", "b:1", "here:1"})
    assert not asked.leading
    asked.note_gone(frozenset({"a-leader:1", "b:1"}), "a-leader:1", {"a-leader:1", "b:1", "here:1"})
    assert asked.leading
