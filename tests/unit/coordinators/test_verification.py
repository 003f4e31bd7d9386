"""Verification with the transaction coordinator before an append, and the answers of clients."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from ottla.config.loading import load
from ottla.coordinators.verification import ABORTABLE, FIRST, SECOND, Generation, TransactionVerifier
from ottla.errors import CoordinatorLoadInProgress, ErrorCode
from ottla.ids import PartitionId, ProducerIdAndEpoch, TopicName, TopicPartition

HERE, THERE = (TopicPartition(TopicName("t"), PartitionId(number)) for number in (0, 1))
PRODUCER = ProducerIdAndEpoch(7, 3)


class Coordinator:
    """Gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Mapping[TopicPartition, ErrorCode] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int, int, set[TopicPartition], bool]] = []

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, set(partitions), verify_only))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def verifier(coordinator: Coordinator, **settings: str) -> TransactionVerifier:
    config, _ = load(None, {name.replace("_", "."): value for name, value in settings.items()})
    return TransactionVerifier(coordinator, lambda: config)


def refusals(coordinator: Coordinator, generation: Generation) -> Mapping[TopicPartition, ErrorCode]:
    asking = verifier(coordinator, add_partitions_to_txn_retry_backoff_ms="1")
    return asyncio.run(asking.refusals("x", PRODUCER, [HERE, THERE], generation))


@pytest.mark.parametrize(("generation", "verify_only"), [(FIRST, True), (ABORTABLE, True), (SECOND, False)])
def test_the_first_generation_is_verified_and_the_second_is_added(generation: Generation, verify_only: bool) -> None:
    coordinator = Coordinator({HERE: ErrorCode.NONE, THERE: ErrorCode.TRANSACTION_ABORTABLE})
    told = ErrorCode.INVALID_TXN_STATE if generation is FIRST else ErrorCode.TRANSACTION_ABORTABLE
    assert refusals(coordinator, generation) == {THERE: told}
    assert coordinator.asked == [("x", 7, 3, {HERE, THERE}, verify_only)]


def test_producers_hear_of_fencing_as_of_an_epoch() -> None:
    answer = dict.fromkeys((HERE, THERE), ErrorCode.PRODUCER_FENCED)
    assert set(refusals(Coordinator(answer), SECOND).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}


def test_a_coordinator_that_cannot_answer_refuses_everything() -> None:
    failing = Coordinator(CoordinatorLoadInProgress("being read"))
    assert refusals(failing, FIRST) == dict.fromkeys((HERE, THERE), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_the_second_generation_waits_for_the_end_of_its_last_transaction() -> None:
    busy, free = dict.fromkeys((HERE, THERE), ErrorCode.CONCURRENT_TRANSACTIONS), dict.fromkeys((HERE, THERE), 0)
    coordinator = Coordinator(busy, busy, dict.fromkeys(free, ErrorCode.NONE))
    assert refusals(coordinator, SECOND) == {}
    assert len(coordinator.asked) == 3


def test_nobody_waits_for_ever() -> None:
    busy = dict.fromkeys((HERE, THERE), ErrorCode.CONCURRENT_TRANSACTIONS)
    coordinator = Coordinator(busy)
    assert refusals(coordinator, SECOND) == busy
    assert len(coordinator.asked) > 1
    once = Coordinator(busy)
    assert refusals(once, FIRST) == busy
    assert len(once.asked) == 1


def test_the_first_generation_need_not_be_verified() -> None:
    told = verifier(Coordinator({}), transaction_partition_verification_enable="false")
    assert (told.verifies, told.is_needed(FIRST), told.is_needed(SECOND)) == (False, False, True)
    by_default = verifier(Coordinator({}))
    assert (by_default.verifies, by_default.is_needed(FIRST)) == (True, True)
