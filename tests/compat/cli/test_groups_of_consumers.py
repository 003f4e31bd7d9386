"""`ottla group`."""

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually


@pytest.fixture
def topic(ottla: OttlaProgram, new_topic: NewTopicFactory) -> str:
    """Two partitions with ten and five records; the first three of partition 0 are two hours old."""
    name = new_topic(2)
    ottla("produce", name, "-p", "0", "--timestamp", "2h", stdin="0\n1\n2\n")
    ottla("produce", name, "-p", "0", stdin="3\n4\n5\n6\n7\n8\n9\n")
    ottla("produce", name, "-p", "1", stdin="0\n1\n2\n3\n4\n")
    return name


@pytest.fixture
def group(ottla: OttlaProgram, topic: str, new_name: NewNameFactory) -> str:
    """A group that has read all of the topic and left."""
    name = new_name()
    ottla("consume", topic, "-g", name, "--exit-at-end")
    return name


def committed(ottla: OttlaProgram, group: str) -> dict[int, int]:
    (described,) = ottla.json("group", "describe", group)
    return {row["partition"]: row["committed"] for row in described["partitions"]}


def test_list_and_describe(ottla: OttlaProgram, topic: str, group: str) -> None:
    assert f"{group}\tEmpty\tclassic" in ottla("group", "list").stdout.splitlines()
    assert group not in ottla("group", "list", "--state", "stable").stdout
    ottla("produce", topic, "-p", "1", stdin="5\n6\n")
    (described,) = ottla.json("group", "describe", group)
    assert described["state"] == "Empty"
    assert described["lag"] == 2
    assert [(row["committed"], row["end_offset"], row["lag"]) for row in described["partitions"]] == [
        (10, 10, 0),
        (5, 7, 2),
    ]
    assert ottla("group", "describe", group).stdout.splitlines()[1] == f"{group}\t{topic}\t1\t5\t7\t2\t-\t-\t-"


def test_an_unknown_group_is_answered_with_the_nearest(ottla: OttlaProgram, group: str) -> None:
    for arguments in (["describe"], ["delete", "--yes"], ["seek", "--all-topics", "--to-latest"]):
        assert f"did you mean {group!r}" in ottla("group", *arguments, group + "x", code=1).stderr


def test_a_running_group_shows_its_member_and_cannot_be_moved(
    ottla: OttlaProgram, topic: str, new_name: NewNameFactory
) -> None:
    group = new_name()
    reader = ottla.start("consume", topic, "-g", group, "--from-beginning", "-X", "client.id=reader")
    try:
        assert reader.stdout is not None
        for _ in range(15):
            reader.stdout.readline()
        (described,) = ottla.json("group", "describe", group)
        assert described["state"] == "Stable"
        assert [member["client"] for member in described["members"]] == ["reader"]
        assert sorted(described["members"][0]["assigned"]) == [f"{topic}-0", f"{topic}-1"]
        assert {row["client"] for row in described["partitions"]} == {"reader"}
        assert "reader" in ottla("group", "describe", group, "--members").stdout
        refused = ottla("group", "seek", group, "--topic", topic, "--to-earliest", "--execute", code=1)
        assert "1 running member" in refused.stderr
        assert "1 running member" in ottla("group", "delete", group, "--yes", code=1).stderr
    finally:
        reader.terminate()
        reader.communicate(timeout=30)
    eventually(lambda: ottla.json("group", "describe", group)[0]["state"] == "Empty")
    assert committed(ottla, group) == {0: 10, 1: 5}


def test_seek_shows_first_and_moves_on_request(ottla: OttlaProgram, topic: str, group: str) -> None:
    shown = ottla("group", "seek", group, "--topic", f"{topic}:0", "--to-offset", "4")
    assert shown.stdout == f"{topic}\t0\t10\t4\t0\t6\n"
    assert "6 records would be read again" in shown.stderr
    assert "add --execute" in shown.stderr
    assert committed(ottla, group) == {0: 10, 1: 5}

    done = ottla("group", "seek", group, "--topic", f"{topic}:0", "--to-offset", "4", "--execute")
    assert "6 records will be read again; 6 records then lie ahead" in done.stderr
    assert committed(ottla, group) == {0: 4, 1: 5}
    assert ottla("consume", topic, "-g", group, "--exit-at-end").stdout == "4\n5\n6\n7\n8\n9\n"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 5}),
        (["--to-offset", "7"], {0: 7, 1: 5}),
        (["--to-time", "1h"], {0: 3, 1: 0}),
        (["--shift-by", "-2"], {0: 8, 1: 3}),
        (["--shift-by", "99"], {0: 10, 1: 5}),
    ],
)
def test_where_to(ottla: OttlaProgram, group: str, where: list[str], expected: dict[int, int]) -> None:
    plan = ottla.json("group", "seek", group, "--all-topics", *where)
    assert plan["executed"] is False
    assert {row["partition"]: row["to"] for row in plan["partitions"]} == expected
    assert ottla.json("group", "seek", group, "--all-topics", *where, "--execute")["executed"] is True
    assert committed(ottla, group) == expected


def test_seek_prepares_a_group_that_does_not_exist_yet(
    ottla: OttlaProgram, topic: str, new_name: NewNameFactory
) -> None:
    group = new_name()
    ottla("group", "seek", group, "-t", topic, "--to-offset", "3", "--execute")
    shown = ottla("consume", topic, "-g", group, "--exit-at-end").stdout.splitlines()
    assert sorted(shown) == sorted(["3", "4", "5", "6", "7", "8", "9", "3", "4"])


def test_delete(ottla: OttlaProgram, group: str) -> None:
    assert "add --yes" in ottla("group", "delete", group, code=2).stderr
    assert ottla("group", "delete", group, "--yes").stderr == f"group {group!r} deleted\n"
    assert group not in ottla("group", "list").stdout
