"""How much one answer to a fetch holds: what was asked for, whether or not it has to be checked first."""

from pathlib import Path

from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import RawConnection
from tests.support.stories import Teller, batch, fetch, produce

from ottla.errors import ErrorCode
from ottla.records.batch import iter_batches

TOPIC = "large"
BATCHES = 12
BATCH_BYTES = 900_000
ASKED_BYTES = 4 << 20


def test_what_has_to_be_checked_comes_in_answers_as_large_as_asked_for(tmp_path: Path) -> None:
    """A broker that has just started has checked nothing: each answer costs its reader as much as a full one."""
    with OttlaProcess(tmp_path) as broker:
        Teller(broker.bootstrap).create(TOPIC)
        with RawConnection(broker.bootstrap) as connection:
            for _ in range(BATCHES):
                (topic,) = connection.ask(produce([(TOPIC, 0, batch(b"v" * BATCH_BYTES))]), 9).responses
                assert topic.partition_responses[0].error_code == ErrorCode.NONE
        broker.stop()
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            found: list[int] = []
            while sum(found) < BATCHES:
                wanted = fetch(
                    [(TOPIC, 0, sum(found))],
                    max_wait_ms=5_000,
                    max_bytes=ASKED_BYTES,
                    partition_max_bytes=ASKED_BYTES,
                )
                (partition,) = connection.ask(wanted, 12).responses[0].partitions
                assert partition.error_code == ErrorCode.NONE
                found.append(sum(1 for _ in iter_batches(memoryview(partition.records))))
    assert found == [ASKED_BYTES // BATCH_BYTES] * 3
