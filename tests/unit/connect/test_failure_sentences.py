"""What a status says of a failure: one sentence, whatever was raised; the log says where it came from."""

import json
import subprocess
from decimal import Decimal, InvalidOperation

import psycopg2
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from sqlalchemy.exc import IdentifierError, OperationalError

from ottla.connect.errors import BadRecord, ConfigError, ConnectError, Retriable
from ottla.connect.runtime.task import sentence_of, traced


class Unprintable(Exception):
    """A plugin whose author made two mistakes."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def a_division() -> None:
    raise ZeroDivisionError("division by zero")


UNEXPECTED = [
    KeyError("id"),
    ValueError(),
    RuntimeError("first line\n  second line\r\nthird"),
    OSError(28, "No space left on device", "/data"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    json.JSONDecodeError("Expecting value", "{", 1),
    InvalidOperation([Decimal]),
    subprocess.CalledProcessError(1, ["x"]),
    KafkaException(KafkaError(KafkaError._TRANSPORT, "away")),
    psycopg2.OperationalError("server closed the connection\n\tThis probably means\n"),
    OperationalError("SELECT 1\nFROM t", {"a": 1}, RuntimeError("gone")),
    IdentifierError("Identifier 'x' exceeds maximum length"),
    pa.ArrowInvalid("no parquet\n"),
    SystemExit(3),
    KeyboardInterrupt(),
    BaseException("a panic of Rust's"),
    ExceptionGroup("several\nthings", [ValueError("a"), KeyError("b")]),
    Unprintable(),
    RuntimeError("x" * 1_000_000),
]


@pytest.mark.parametrize("failure", UNEXPECTED, ids=lambda each: type(each).__name__)
def test_an_unexpected_failure_is_its_type_and_message_in_one_line(failure: BaseException) -> None:
    sentence = sentence_of(failure)
    assert sentence.startswith(type(failure).__name__)
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert len(sentence) < 2_100


@pytest.mark.parametrize("kind", [ConnectError, Retriable, BadRecord, ConfigError])
def test_an_expected_failure_is_its_own_sentence_in_status_and_log(kind: type[ConnectError]) -> None:
    failure = kind("table t is not there:\n make it")
    assert sentence_of(failure) == "table t is not there: make it"
    assert "Traceback" not in traced(failure)


def test_the_log_says_where_an_unexpected_failure_came_from() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        a_division()
    text = traced(raised.value)
    assert text.startswith(
        "ZeroDivisionError: division by zero (unexpected: the worker's log has where it came from)\n"
    )
    assert "in a_division" in text


def test_a_failure_that_python_cannot_format_is_logged_by_its_stack() -> None:
    """The client library can chain an exception to an object that is none."""

    class Unprintable(Exception):
        @property
        def __cause__(self) -> BaseException:  # type: ignore[override]
            raise AttributeError("no attribute '__traceback__'")

    with pytest.raises(Unprintable) as raised:
        raise Unprintable("the brokers are away")
    text = traced(raised.value)
    assert text.startswith("Unprintable: the brokers are away")
    assert "test_failure_sentences.py" in text
