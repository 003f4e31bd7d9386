"""The runtime with producers that append within transactions."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordinators.adder import Bench, Do, P, code_of, run, settle

from ottla.coordination.markers import TransactionMarker
from ottla.coordination.producers import NOT_REQUIRED
from ottla.errors import ErrorCode, InvalidProducerEpoch, InvalidTxnState, NotLeader, TransactionCoordinatorFenced
from ottla.ids import ProducerIdAndEpoch
from ottla.records.batch import BatchHeader, read_header

SEVEN, EIGHT = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 2)


def promise(bench: Bench, producer: ProducerIdAndEpoch, *numbers: int) -> "asyncio.Future[Any]":
    return bench.runtime.submit(
        P,
        Do("promise", (producer, *numbers)),
        producer=producer,
        verification=NOT_REQUIRED,
    )


def marker(producer: ProducerIdAndEpoch, *, committed: bool = True, coordinator_epoch: int = 0) -> TransactionMarker:
    return TransactionMarker(producer.producer_id, producer.epoch, coordinator_epoch, committed)


def headers(bench: Bench) -> list[BatchHeader]:
    return [read_header(batch) for batch in bench.log.batches]


def test_what_a_transaction_holds_counts_when_it_is_committed() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await promise(bench, SEVEN, 5)
        assert await bench.submit("get") == 0
        await bench.runtime.end_transaction(P, marker(SEVEN))
        assert await bench.submit("get") == 5

    run(test)


def test_what_a_transaction_holds_is_gone_when_it_is_aborted() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await promise(bench, SEVEN, 5)
        await bench.runtime.end_transaction(P, marker(SEVEN, committed=False))
        assert await bench.submit("get") == 0

    run(test)


def test_a_batch_never_mixes_producers() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await asyncio.gather(
            bench.submit("add", 1),
            promise(bench, SEVEN, 2, 3),
            promise(bench, EIGHT, 4),
            promise(bench, EIGHT, 5),
            bench.submit("add", 6),
        )
        assert bench.log.numbers == [[1], [2, 3], [4, 5], [6]]
        assert [(h.producer_id, h.producer_epoch, h.is_transactional) for h in headers(bench)] == [
            (-1, -1, False),
            (7, 0, True),
            (8, 2, True),
            (-1, -1, False),
        ]

    run(test)


def test_batches_that_wait_together_share_a_write() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        first, second, ended = bench.submit("add", 1), promise(bench, SEVEN, 2), promise(bench, EIGHT, 3)
        end = bench.runtime.end_transaction(P, marker(SEVEN))
        await settle()
        assert len(bench.log.writes) == 1
        bench.log.writes[0][1].set_result(None)
        await asyncio.gather(first, second, ended, end)
        assert len(bench.log.batches) == 4

    run(test)


def test_a_marker_stands_behind_what_was_appended_before_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        promised = promise(bench, SEVEN, 5)
        ended = bench.runtime.end_transaction(P, marker(SEVEN, coordinator_epoch=3))
        after = bench.submit("add", 1)
        await settle()
        assert not any(future.done() for future in (promised, ended, after))
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await asyncio.gather(promised, ended, after)
        assert [header.is_control for header in headers(bench)] == [False, True, False]
        assert bench.machines[0].positions == [0, 2]
        assert [header.base_offset for header in headers(bench)] == [0, 1, 2]
        assert bench.log.state.producers[7].coordinator_epoch == 3

    run(test)


def test_nothing_is_added_to_a_batch_behind_a_marker() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        blocking = bench.submit("add", 1)
        await settle()
        ended = bench.runtime.end_transaction(P, marker(SEVEN))
        added = bench.submit("add", 2)
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await asyncio.gather(blocking, ended, added)
        assert [header.is_control for header in headers(bench)] == [False, True, False]

    run(test)


def test_a_successor_knows_the_same() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await promise(bench, SEVEN, 5)
        await promise(bench, EIGHT, 6)
        await bench.runtime.end_transaction(P, marker(SEVEN))
        bench.runtime.on_resign(P)
        await bench.lead()
        assert (bench.machines[1].total, bench.machines[1].pending) == (5, {8: 6})
        await bench.runtime.end_transaction(P, marker(EIGHT))
        assert await bench.submit("get") == 11

    run(test)


def test_a_producer_of_the_past_is_refused() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        await promise(bench, EIGHT, 1)
        with pytest.raises(InvalidProducerEpoch, match="producer 8 has epoch 1, already at 2"):
            promise(bench, EIGHT._replace(epoch=1), 2)
        with pytest.raises(InvalidProducerEpoch):
            bench.runtime.end_transaction(P, marker(EIGHT._replace(epoch=1)))
        assert bench.machines[0].pending == {8: 1}

    run(test)


def test_a_producer_is_refused_by_what_is_only_queued() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        blocking = bench.submit("add", 1)
        await settle()
        queued = bench.runtime.end_transaction(P, marker(SEVEN._replace(epoch=4), coordinator_epoch=9))
        with pytest.raises(InvalidProducerEpoch, match="producer 7 has epoch 0, already at 4"):
            promise(bench, SEVEN, 2)
        with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 8, already at 9"):
            bench.runtime.end_transaction(P, marker(SEVEN._replace(epoch=4), coordinator_epoch=8))
        bench.log.held = False
        bench.log.writes[0][1].set_result(None)
        await asyncio.gather(blocking, queued)
        with pytest.raises(TransactionCoordinatorFenced):  # by what is in the log
            bench.runtime.end_transaction(P, marker(SEVEN._replace(epoch=4), coordinator_epoch=8))

    run(test)


def test_records_that_no_transaction_holds_are_refused() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        with pytest.raises(InvalidTxnState, match="producer 7 has no transaction"):
            bench.runtime.submit(P, Do("promise", (SEVEN, 1)), producer=SEVEN)
        assert bench.machines[0].pending == {}

    run(test)


def test_a_failed_write_refuses_whoever_waits_for_a_marker() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        bench.log.held = True
        ended = bench.runtime.end_transaction(P, marker(SEVEN))
        await settle()
        bench.log.writes[0][1].set_exception(NotLeader("moved"))
        await settle()
        assert code_of(ended) is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_defect_at_the_end_of_a_transaction_costs_one_machine() -> None:
    async def test(bench: Bench) -> None:
        await bench.lead()
        broken = bench.runtime.end_transaction(P, marker(SEVEN)._replace(committed=None))  # type: ignore[arg-type]
        await settle()
        assert code_of(broken) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(bench.machines) == 2

    run(test)
