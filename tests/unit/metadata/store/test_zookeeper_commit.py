"""How transactions look in ZooKeeper, and what is known of one whose answer was lost."""

from typing import Any

import pytest
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.metadata.store.base import Check, Create, Delete, Update
from ottla.metadata.store.zookeeper_commit import EPHEMERAL, SEQUENTIAL, Outcome, outcome, parents, requests_for
from ottla.metadata.store.zookeeper_wire import Found

BEFORE, MINE, LATER = 100, 101, 105
SESSION, OTHER = 7, 8


def node(
    data: bytes | None = b"", *, made: int = 1, changed: int = 1, version: int = 0, owner: int = 0, below: int = 1
) -> Found:
    """A node; `below` is the newest change of its children's names."""
    return Found(data, ZnodeStat(made, changed, 0, 0, version, 0, 0, owner, 0, 0, below))


def create(path: str, data: bytes | None = b"new", flags: int = 0) -> Any:
    return wire.Create(path, data, OPEN_ACL_UNSAFE, flags)


def judged(requests: list[Any], **nodes: Found) -> Outcome:
    """The outcome of a transaction on nodes right below the root, whose own names changed when it was sent or later."""
    found = {"/": node(below=MINE), **{f"/{name}": each for name, each in nodes.items()}}
    return outcome(requests, found, newest_before=BEFORE, session_id=SESSION)


def test_parents_from_the_top() -> None:
    assert parents("/a/b/c") == ["/a", "/a/b"]
    assert parents("/a") == []


def test_makes_parents_first_and_deletes_children_first() -> None:
    requests = requests_for(
        [Delete("/t", 3), Create("/a/b/c", b"c"), Update("/u", b"u", 2), Check("/epoch", 5), Delete("/t/x/state", 0)],
        "/root",
        missing=["/root/a/b", "/root/a"],
        empty={},
        mere=["/root/t/x"],
    )
    assert requests == [
        wire.CheckVersion("/root/epoch", 5),
        create("/root/a", None),
        create("/root/a/b", None),
        create("/root/a/b/c", b"c"),
        wire.SetData("/root/u", b"u", 2),
        wire.Delete("/root/t/x/state", 0),
        wire.Delete("/root/t/x", -1),
        wire.Delete("/root/t", 3),
    ]


def test_writes_into_what_is_there_without_data() -> None:
    made = Create("/a", b"x")
    assert requests_for([made], "", missing=(), empty={"/a": 4}, mere=()) == [wire.SetData("/a", b"x", 4)]


def test_marks_what_is_bound_or_numbered() -> None:
    operations = [Create("/a", b"", session_bound=True), Create("/b", b"", sequential=True)]
    assert requests_for(operations, "", missing=(), empty={}, mere=()) == [
        create("/a", b"", EPHEMERAL),
        create("/b", b"", SEQUENTIAL),
    ]


DONE, NOT, UNKNOWN = Outcome.DONE, Outcome.NOT_DONE, Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(b"new", made=MINE), DONE),
        (node(b"new", made=BEFORE), NOT),
        (node(b"another's", made=MINE), NOT),
        (node(b"new", made=MINE, owner=OTHER), NOT),
        (node(b"changed", made=MINE, changed=LATER, version=1), UNKNOWN),
    ],
)
def test_of_a_node_that_was_to_be_made(found: Found, expected: Outcome) -> None:
    assert judged([create("/n")], n=found) is expected


def test_of_a_node_that_was_to_be_made_and_is_not_there() -> None:
    assert judged([create("/n")]) is UNKNOWN  # made and deleted since, or never made
    untouched = {"/": node(below=BEFORE)}
    assert outcome([create("/n")], untouched, newest_before=BEFORE, session_id=SESSION) is NOT


@pytest.mark.parametrize(("owner", "expected"), [(SESSION, DONE), (OTHER, NOT)])
def test_of_a_node_bound_to_the_session(owner: int, expected: Outcome) -> None:
    assert judged([create("/n", flags=EPHEMERAL)], n=node(b"new", made=MINE, owner=owner)) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(b"new", changed=MINE, version=4), DONE),
        (node(b"old", changed=BEFORE, version=3), NOT),
        (node(b"another's", changed=MINE, version=4), NOT),
        (node(b"later", changed=LATER, version=5), UNKNOWN),
    ],
)
def test_of_a_node_that_was_to_change(found: Found, expected: Outcome) -> None:
    assert judged([wire.SetData("/n", b"new", 3)], n=found) is expected


def test_of_a_node_that_was_to_go() -> None:
    assert judged([wire.Delete("/n", 0)]) is DONE
    assert judged([wire.Delete("/n", 0)], n=node(made=BEFORE)) is NOT
    assert judged([wire.Delete("/n", 0)], n=node(made=LATER)) is UNKNOWN
    untouched = {"/": node(below=BEFORE)}
    assert outcome([wire.Delete("/n", 0)], untouched, newest_before=BEFORE, session_id=SESSION) is NOT


def test_two_numbers_are_not_one_transaction() -> None:
    both = [create("/a"), wire.SetData("/b", b"new", 0)]
    assert judged(both, a=node(b"new", made=MINE), b=node(b"new", changed=MINE, version=1)) is DONE
    assert judged(both, a=node(b"new", made=MINE), b=node(b"new", changed=LATER, version=1)) is NOT


def test_one_proof_is_enough() -> None:
    both = [create("/a"), wire.SetData("/b", b"new", 0)]
    assert judged(both, b=node(b"old", changed=BEFORE)) is NOT  # whatever has become of /a


def test_what_tells_nothing_is_done_again() -> None:
    assert judged([wire.CheckVersion("/n", 0)], n=node()) is NOT
    assert judged([create("/n-", flags=SEQUENTIAL)]) is NOT
    assert judged([create("/n-", flags=SEQUENTIAL), create("/m")], m=node(b"new", made=MINE)) is DONE
