"""Brokers that are away: known after some refusals of all addresses, and only to those that have lost them, too."""

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.connect.api import Retriable
from ottla.connect.runtime.brokers import Brokers, Lifeline


def test_brokers_are_away_when_all_of_them_refuse_for_some_seconds() -> None:
    answers: dict[str, bool | None] = {"a:1": False, "b:1": False}
    brokers = Brokers("PLAINTEXT://a:1, b:1", answers.__getitem__)
    for _ in range(4):
        brokers.look()
    assert not brokers.away
    brokers.look()
    assert brokers.away
    for answer in (None, True):  # one that does not answer may be there
        answers["b:1"] = answer
        brokers.look()
        assert not brokers.away
    stopped = threading.Event()
    assert not brokers.wait(stopped)
    answers["b:1"] = False
    for _ in range(5):
        brokers.look()
    stopped.set()
    assert brokers.wait(stopped), "a task that is to stop makes no clients, although brokers are away"


class Client:
    def __init__(self, *, reaches_one: bool) -> None:
        self.reaches_one, self.asked = reaches_one, 0

    def list_topics(self, *, timeout: float) -> None:
        self.asked += 1
        if not self.reaches_one:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_task_goes_on_with_brokers_that_are_not_among_the_first() -> None:
    brokers = Brokers("a:1", lambda _: False)
    lifeline, other = Lifeline(brokers), Lifeline(brokers)
    here, lost = Client(reaches_one=True), Client(reaches_one=False)
    other.check(lost)  # it was so for a moment
    for _ in range(5):
        brokers.look()
    for _ in range(3):
        lifeline.check(here)
    assert here.asked == 1
    with pytest.raises(Retriable, match="no broker takes connections"):
        other.check(lost)
