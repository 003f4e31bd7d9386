"""A transaction in thousands of partitions delays no other client by more than 50 ms: its records, verified or not, and
its end."""

from typing import Any, Final

import pytest
from tests.support.bystander import bystander
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import Record, encode_batch

MOST_S: Final = 0.05
EVERY_S: Final = 0.004
ROUNDS: Final = 3
PARTITIONS: Final = 1500


def begin(client: RawConnection) -> InitProducerIdResponse:
    """The producer's new epoch, once its coordinator can be asked and its last transaction has ended."""
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)

    def try_to_begin() -> InitProducerIdResponse | None:
        begun: InitProducerIdResponse = client.ask(request, 4)
        return begun if begun.error_code == 0 else None

    return eventually(try_to_begin)


@pytest.mark.timeout(300)
def test_a_transaction_in_thousands_of_partitions_delays_nobody() -> None:
    delays_s: dict[str, float] = {}

    def note(what: str, worst_s: float) -> None:
        delays_s[what] = min(worst_s, delays_s.get(what, 1e9))
        print(f"{worst_s * 1000:6.1f} ms while {what}", flush=True)

    with (
        OttlaProcess() as broker,
        RawConnection(broker.bootstrap, timeout_s=120) as client,
        bystander(broker, EVERY_S) as seen,
    ):
        topic = CreatableTopic(
            name="orders", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), 7).topics[0].error_code == 0
        for _ in range(ROUNDS):
            begun = begin(client)
            producer: dict[str, Any] = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
            for sequence, what in enumerate(("records are verified", "records follow")):
                batch = bytes(
                    encode_batch([Record(0, 0, None, b"v")], base_sequence=sequence, transactional=True, **producer)
                )
                data = [PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
                topics = [TopicProduceData(name="orders", partition_data=data)]
                request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=60_000, topic_data=topics)
                seen.lap()
                (answered,) = client.ask(request, 12).responses
                note(what, seen.lap().worst_s)
                assert {(one.error_code, one.base_offset >= 0) for one in answered.partition_responses} == {(0, True)}
            seen.lap()
            assert client.ask(EndTxnRequest(transactional_id="tx", committed=True, **producer), 4).error_code == 0
            note("the transaction ends", seen.lap().worst_s)
            if max(delays_s.values()) <= MOST_S:
                break
    assert not {what: delay_s for what, delay_s in delays_s.items() if delay_s > MOST_S}
