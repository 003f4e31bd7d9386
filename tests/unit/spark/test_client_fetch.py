import pytest
from confluent_kafka import KafkaError, Message

from ottla.spark.client_fetch import Found, advance
from ottla.spark.errors import SourceError
from ottla.spark.offsets import OffsetRange, Partition

WANTED = OffsetRange(Partition("t", 0), 10, 20)


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, value=b"")


def event(code: int, offset: int = -1001) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=KafkaError(code))


def offsets(messages: list[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


def test_offsets_that_skip_are_followed() -> None:
    records, position, found = advance([record(10), record(13), record(19)], WANTED, 10)
    assert (offsets(records), position, found) == ([10, 13, 19], 20, Found.RECORDS)


def test_what_lies_behind_the_range_ends_it() -> None:
    records, position, _ = advance([record(12), record(27), record(28)], WANTED, 10)
    assert offsets(records) == [12]
    assert position >= WANTED.end


def test_a_range_that_ends_in_a_gap_ends_where_the_log_does() -> None:
    records, position, found = advance([record(17), event(KafkaError._PARTITION_EOF, 20)], WANTED, 10)
    assert (offsets(records), position, found) == ([17], 20, Found.END)


def test_an_end_that_grew_is_no_end() -> None:
    _, position, found = advance([event(KafkaError._PARTITION_EOF, 15), record(15)], WANTED, 15)
    assert (position, found) == (16, Found.RECORDS)


def test_an_offset_outside_the_log_is_told_apart_from_its_end() -> None:
    assert advance([event(KafkaError._AUTO_OFFSET_RESET, 10)], WANTED, 10) == ([], 10, Found.NOTHING_THERE)


def test_a_broker_that_is_away_is_waited_for() -> None:
    assert advance([event(KafkaError._TRANSPORT)], WANTED, 10) == ([], 10, Found.RECORDS)


def test_an_error_that_stays_is_raised() -> None:
    with pytest.raises(SourceError, match=r"reading t-0 at offset 10: .*[Nn]ot authorized|.*authorization failed"):
        advance([event(KafkaError.TOPIC_AUTHORIZATION_FAILED)], WANTED, 10)
