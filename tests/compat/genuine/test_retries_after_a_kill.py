"""What an idempotent producer is answered when it sends again what a broker had appended before it was killed.

Its requests were under way, so it knows no answer, and it sends all of them again, oldest first. Genuine Kafka writes a
snapshot of its producers when recovery has read the log, and loads its producers from that. A snapshot keeps the last
batch of each producer alone. The older ones are therefore out of order for it, and the producer fails for good
although nothing is lost. Ottla reads the batches before the snapshot as well, and knows all of them for duplicates.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import stories
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.genuine39 import GenuineKafka39
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

from ottla.errors import ErrorCode

UNDER_WAY: Final = 5
"""As many requests as an idempotent producer has on their way."""
PRODUCER_ID: Final = 1000
RETRIABLE: Final = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""A broker that has just started does not know its topics yet."""


def ottla(_: ExitStack) -> BrokerProcess:
    return OttlaProcess()


def genuine(_: ExitStack) -> BrokerProcess:
    return GenuineKafka()


def genuine39(stack: ExitStack) -> BrokerProcess:
    return GenuineKafka39(stack.enter_context(ZooKeeperServer()).connect)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    new: Callable[[ExitStack], BrokerProcess] = request.param
    with ExitStack() as stack:
        yield stack.enter_context(new(stack))


def send(broker: BrokerProcess, sequence: int) -> tuple[ErrorCode, int]:
    """The answer to the batch with that sequence number: its error and the base offset."""
    batch = stories.batch(b"%d" % sequence, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)

    def answer() -> tuple[ErrorCode, int] | None:
        (response,) = ask(broker.bootstrap, stories.produce([("t", 0, batch)]), 9).responses
        (part,) = response.partition_responses
        error = ErrorCode(part.error_code)
        return None if error in RETRIABLE else (error, part.base_offset)

    return eventually(answer, timeout_s=60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("broker", "knows_all"),
    [
        pytest.param(ottla, True, id="ottla"),
        pytest.param(genuine, False, id="genuine", marks=pytest.mark.soak),
        pytest.param(genuine39, False, id="genuine-3.9", marks=pytest.mark.soak),
    ],
    indirect=["broker"],
)
def test_batches_whose_answers_were_lost_when_the_broker_was_killed(broker: BrokerProcess, *, knows_all: bool) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    for sequence in range(UNDER_WAY):
        assert send(broker, sequence) == (ErrorCode.NONE, sequence)
    broker.restart(kill=True)
    answers = [send(broker, sequence) for sequence in range(UNDER_WAY)]
    forgotten = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    older = [(ErrorCode.NONE, sequence) if knows_all else forgotten for sequence in range(UNDER_WAY - 1)]
    assert answers == [*older, (ErrorCode.NONE, UNDER_WAY - 1)]
    values = [b"%d" % sequence for sequence in range(UNDER_WAY)]
    assert read_all(broker.bootstrap, "t", UNDER_WAY) == values  # nothing is lost, nothing is there twice
