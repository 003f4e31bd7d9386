"""`ottla txn`."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually


@pytest.fixture
def topic(new_topic: NewTopicFactory) -> str:
    return new_topic(2)


@pytest.fixture
def producer(ottla: OttlaProgram, topic: str, new_name: NewNameFactory) -> Iterator[tuple[str, Producer]]:
    """One with a transaction in which it has written three records to partition 0 and one to partition 1."""
    name = new_name()
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value, partition in ((b"a", 0), (b"b", 0), (b"c", 0), (b"d", 1)):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0
    yield name, producer
    producer.purge()


def listed(ottla: OttlaProgram, name: str, *options: str) -> dict[str, object] | None:
    rows = ottla.json("txn", "list", *options)
    return next((row for row in rows if row["transactional_id"] == name), None)


def test_an_open_transaction_is_listed(ottla: OttlaProgram, producer: tuple[str, Producer]) -> None:
    name, _ = producer
    row = listed(ottla, name)
    assert row is not None
    assert (row["state"], row["partitions"], row["epoch"]) == ("Ongoing", 2, 0)
    assert str(row["since"]).startswith("20")
    assert listed(ottla, name, "--state", "ongoing") == row
    assert listed(ottla, name, "--state", "empty") is None
    assert listed(ottla, name, "--longer-than", "1h") is None
    assert f"{name}\t{row['producer_id']}\t0\tOngoing\t{row['since']}\t2" in ottla("txn", "list").stdout.splitlines()


def test_what_a_transaction_holds_back_is_told(ottla: OttlaProgram, topic: str, producer: tuple[str, Producer]) -> None:
    name, open_one = producer
    ottla("produce", topic, "-p", "0", stdin="x\ny\n")
    (described,) = ottla.json("txn", "describe", name)
    assert described["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "first_offset": 0,
            "last_stable_offset": 0,
            "end_offset": 5,
            "held_back": 5,
        },
        {
            "topic": topic,
            "partition": 1,
            "first_offset": 0,
            "last_stable_offset": 0,
            "end_offset": 1,
            "held_back": 1,
        },
    ]
    assert ottla("txn", "describe", name).stdout.splitlines()[0] == f"{name}\t{topic}\t0\t0\t0\t5\t5"
    open_one.commit_transaction(30)

    def committed() -> bool:
        (now,) = ottla.json("txn", "describe", name)
        return (now["state"], now["since"], now["partitions"]) == ("CompleteCommit", None, [])

    eventually(committed)


def test_a_topic_deleted_under_a_transaction_is_listed_still(
    ottla: OttlaProgram, topic: str, producer: tuple[str, Producer]
) -> None:
    name, _ = producer
    ottla("topic", "delete", topic, "--yes")

    def gone() -> bool:
        (described,) = ottla.json("txn", "describe", name)
        rows = [(row["partition"], row["end_offset"]) for row in described["partitions"]]
        assert [partition for partition, _ in rows] == [0, 1]
        return [end for _, end in rows] == [None, None]

    eventually(gone)


def test_on_a_terminal(ottla: OttlaProgram, producer: tuple[str, Producer]) -> None:
    name, _ = producer
    code, seen = ottla.on_terminal("txn", "describe", name)
    assert code == 0
    assert "HELD BACK" in seen
    code, seen = ottla.on_terminal("txn", "abort", name, answer="n")
    assert code == 1
    assert "and fence its producer? [y/N]" in seen
    assert "nothing was changed" in seen


def test_an_aborted_transaction_fences_its_producer(
    ottla: OttlaProgram, topic: str, producer: tuple[str, Producer]
) -> None:
    name, fenced = producer
    assert f"aborted the transaction of {name!r}; its producer is fenced" in ottla("txn", "abort", name, "--yes").stderr
    ended = eventually(lambda: row if (row := listed(ottla, name)) is not None and row["state"] != "Ongoing" else None)
    assert ended["epoch"] != 0
    assert ottla("consume", topic, "--from-beginning", "--exit-at-end").stdout == ""
    with pytest.raises(KafkaException) as raised:
        fenced.commit_transaction(30)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert "has no open transaction" in ottla("txn", "abort", name, "--yes", code=1).stderr


def test_nothing_hangs_that_its_coordinator_knows(
    ottla: OttlaProgram, topic: str, producer: tuple[str, Producer]
) -> None:
    name, _ = producer
    assert ottla.json("txn", "find-hanging", "--topic", topic, "--silent-for", "0s") == []
    complaint = ottla("txn", "abort", "--partition", f"{topic}-0", "--yes", code=1).stderr
    assert f"`ottla txn abort {name}` aborts it" in complaint


def test_what_is_not_there_is_said(ottla: OttlaProgram, topic: str, producer: tuple[str, Producer]) -> None:
    name, _ = producer
    assert f"did you mean {name!r}?" in ottla("txn", "describe", name + "x", code=1).stderr
    assert f"did you mean {name!r}?" in ottla("txn", "abort", name + "x", "--yes", code=1).stderr
    assert "does not exist" in ottla("txn", "abort", "--partition", f"{topic}-7", "--yes", code=1).stderr
    assert "no open transaction that begins at offset 99" in (
        ottla("txn", "abort", "--partition", f"{topic}-0", "--first-offset", "99", "--yes", code=1).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["abort", "--yes"], "name either a transactional id or a --partition"),
        (["abort", "x", "--partition", "t-0"], "name either a transactional id or a --partition"),
        (["abort", "x", "--first-offset", "3"], "--first-offset goes with --partition"),
        (["abort", "--partition", "t"], "'t' is not a partition such as orders-0"),
        (["list", "--state", "ongoin"], "no such state: 'ongoin'; did you mean 'Ongoing'?"),
        (["find-hanging", "--silent-for", "soon"], "'soon' is not a duration"),
    ],
)
def test_wrong_usage(ottla: OttlaProgram, arguments: list[str], complaint: str) -> None:
    assert complaint in ottla("txn", *arguments, code=2).stderr
