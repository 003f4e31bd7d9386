"""`ottla topic`."""

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually


def test_create_list_describe_delete(ottla: OttlaProgram, new_name: NewNameFactory) -> None:
    topic = new_name()
    created = ottla("topic", "create", topic, "--partitions", "3", "-c", "retention.ms=1234567")
    assert created.stderr == f"topic {topic!r} created\n"
    assert eventually(lambda: ottla("topic", "list", topic).stdout) == f"{topic}\t3\t1\n"
    assert topic in ottla("topic", "list", "--names").stdout.splitlines()
    assert {"topic": topic, "partitions": 3, "replicas": 1} in ottla.json("topic", "list")

    (described,) = ottla.json("topic", "describe", topic)
    assert described["topic"] == topic
    assert len(described["topic_id"]) == 22
    assert described["settings"] == {"retention.ms": "1234567"}
    assert [(row["partition"], row["leader"], row["end_offset"]) for row in described["partitions"]] == [
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
    ]
    assert ottla("topic", "describe", topic).stdout.splitlines()[2] == f"{topic}\t2\t1\t1\t1\t0\t0\t0"

    assert ottla("topic", "delete", topic, "--yes").stderr == f"topic {topic!r} deleted\n"
    eventually(lambda: not ottla("topic", "list", topic).stdout)


def test_creating_twice(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    assert "already exists" in ottla("topic", "create", topic, code=1).stderr
    assert "exists already" in ottla("topic", "create", topic, "--if-not-exists").stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bad name"], "cannot be created"),
        (["{}", "-r", "5"], "fewer brokers than the replication factor asks for"),
        (["{}", "-c", "retention.ms=soon"], "retention.ms"),
    ],
)
def test_what_cannot_be_created(
    ottla: OttlaProgram, new_name: NewNameFactory, arguments: list[str], complaint: str
) -> None:
    name = new_name()
    failed = ottla("topic", "create", *(argument.format(name) for argument in arguments), code=1)
    assert complaint in failed.stderr
    assert name not in ottla("topic", "list", "--names").stdout


def test_dry_run_creates_nothing(ottla: OttlaProgram, new_name: NewNameFactory) -> None:
    topic = new_name()
    assert "could be created" in ottla("topic", "create", topic, "--dry-run").stderr
    assert not ottla("topic", "list", topic).stdout


def test_an_unknown_topic_is_answered_with_the_nearest(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    for arguments in (
        ["topic", "describe"],
        ["topic", "delete", "--yes"],
        ["topic", "alter", "-p", "2"],
        ["topic", "trim", "--all", "--yes"],
        ["consume"],
        ["produce"],
    ):
        failed = ottla(*arguments, topic + "x", code=1)
        assert f"topic '{topic}x' does not exist; did you mean {topic!r}?" in failed.stderr


def test_deleting_needs_a_yes(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    assert "add --yes" in ottla("topic", "delete", topic, code=2).stderr
    assert ottla("topic", "list", topic).stdout
    assert "nothing was deleted" in ottla("topic", "delete", topic, "absent-" + topic, "--yes", code=1).stderr
    assert ottla("topic", "list", topic).stdout
    ottla("topic", "delete", topic, "absent-" + topic, "--yes", "--if-exists")


def test_alter(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    ottla("topic", "alter", topic, "--partitions", "3", "-c", "cleanup.policy=compact")
    (described,) = eventually(
        lambda: [each for each in ottla.json("topic", "describe", topic) if len(each["partitions"]) == 3]
    )
    assert described["settings"] == {"cleanup.policy": "compact"}
    ottla("topic", "alter", topic, "--unset", "cleanup.policy")
    (described,) = ottla.json("topic", "describe", topic)
    assert described["settings"] == {}
    assert "cannot be taken away" in ottla("topic", "alter", topic, "--partitions", "1", code=1).stderr
    assert "did you mean 'retention.ms'" in ottla("topic", "alter", topic, "-c", "retenton.ms=1", code=1).stderr


def test_trim(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    for partition, count in (("0", 10), ("1", 5)):
        ottla("produce", topic, "-p", partition, stdin="".join(f"{n}\n" for n in range(count)))
    assert "add --yes" in ottla("topic", "trim", topic, "--all", code=2).stderr
    trimmed = ottla("topic", "trim", topic, "--before-offset", "4", "--partition", "0", "--yes")
    assert trimmed.stdout == "0\t4\t4\n"
    assert ottla("consume", topic, "-e", "-p", "0").stdout == "4\n5\n6\n7\n8\n9\n"
    assert "ends at offset 10" in ottla(
        "topic", "trim", topic, "--before-offset", "11", "--partition", "0", "--yes", code=1
    ).stderr  # fmt: skip
    assert "has no partition 7" in ottla("topic", "trim", topic, "--all", "--partition", "7", "-y", code=1).stderr
    assert ottla.json("topic", "trim", topic, "--before-time", "now", "--yes") == [
        {"partition": 0, "first_offset": 10, "deleted": 6},
        {"partition": 1, "first_offset": 5, "deleted": 5},
    ]
    assert "nothing to delete" in ottla("topic", "trim", topic, "--before-time", "1h", "--yes").stderr


def test_a_terminal_gets_tables_and_questions(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    ottla("produce", topic, stdin="a\nb\nc\n")
    code, seen = ottla.on_terminal("topic", "describe", topic)
    assert code == 0
    assert "FIRST OFFSET" in seen
    assert "partitions  2" in seen

    code, seen = ottla.on_terminal("topic", "delete", topic, answer="n")
    assert code == 1
    assert f"Delete {topic!r} with 3 records? [y/N]" in seen
    assert "nothing was changed" in seen
    assert ottla("topic", "list", topic).stdout

    code, seen = ottla.on_terminal("topic", "delete", topic, answer="y")
    assert code == 0
    eventually(lambda: not ottla("topic", "list", topic).stdout)
