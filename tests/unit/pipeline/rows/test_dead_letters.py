import pytest

from ottla.pipeline.rows import dead_letters
from ottla.pipeline.rows.dead_letters import DeadLetter, original_headers

HEADERS: list[dead_letters.Header] = [
    ("trace", b"7"),
    (dead_letters.REASON, b"malformed JSON"),
    (dead_letters.SOURCE_TOPIC, b"flights"),
    (dead_letters.SOURCE_PARTITION, b"2"),
    (dead_letters.SOURCE_OFFSET, b"17"),
    (dead_letters.SOURCE_TIMESTAMP, b"1700000000000"),
    (dead_letters.JOB, b"delays"),
    (dead_letters.VIEW, b"clean"),
]


def test_headers_say_why_and_where_from() -> None:
    assert DeadLetter.read(HEADERS) == DeadLetter(
        reason="malformed JSON",
        topic="flights",
        partition=2,
        offset=17,
        timestamp_ms=1_700_000_000_000,
        job="delays",
        view="clean",
    )


def test_the_last_header_of_a_name_counts() -> None:
    again = DeadLetter.read([*HEADERS, (dead_letters.REASON, b"check failed: x"), (dead_letters.SOURCE_OFFSET, b"18")])

    assert again is not None
    assert (again.reason, again.offset) == ("check failed: x", 18)


def test_a_row_that_came_from_no_topic_has_a_reason_alone() -> None:
    letter = DeadLetter.read([(dead_letters.REASON, b"check failed: x")])

    assert letter == DeadLetter("check failed: x", None, None, None, None, None, None)


@pytest.mark.parametrize("headers", [None, [], [("trace", b"7")], [(dead_letters.JOB, b"delays")]])
def test_a_record_without_a_reason_is_no_dead_letter(headers: list[dead_letters.Header] | None) -> None:
    assert DeadLetter.read(headers) is None


def test_a_number_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError):
        DeadLetter.read([(dead_letters.REASON, b"x"), (dead_letters.SOURCE_OFFSET, b"many")])


def test_original_headers_are_those_of_before() -> None:
    assert original_headers([*HEADERS, ("last", None)]) == [("trace", b"7"), ("last", None)]
    assert original_headers(None) == []
