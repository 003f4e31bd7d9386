"""Periodic work of a broker goes by the time that has passed, whatever its wall clock says."""

import asyncio
from unittest.mock import Mock

import pytest

from ottla.log.producer_state import ProducerState
from ottla.replication.maintenance import BYTES_PER_CHECKPOINT, Maintenance
from ottla.replication.throughput import ThroughputByTopic
from ottla.testing.manual_clock import ManualClock

EXPIRATION_MS = 86_400_000


def test_a_wall_clock_that_jumps_has_no_producer_forgotten() -> None:
    clock = ManualClock()
    state = Mock(spec=ProducerState)
    replicas = Mock(config=Mock(producer_id_expiration_ms=EXPIRATION_MS))
    replicas.partitions.return_value = [Mock(log=Mock(producer_state=state))]
    maintenance = Maintenance(Mock(), replicas, Mock(), Mock(), clock)

    def checked_at() -> int:
        asyncio.run(maintenance.expire_producers())
        now_ms, limit_ms = state.remove_expired.call_args.args
        assert limit_ms == EXPIRATION_MS
        return int(now_ms)

    before = checked_at()
    clock.jump_to(clock.now_ms() + 400 * EXPIRATION_MS)
    assert checked_at() == before
    clock.advance(seconds=5)
    assert checked_at() == before + 5_000


@pytest.mark.parametrize(("deleted_to", "is_synced"), [(5, False), (40, True)])
def test_a_follower_syncs_what_lies_before_the_log_start(deleted_to: int, *, is_synced: bool) -> None:
    """Else its segment would stay: nothing that is not synced is deleted."""
    log = Mock(awaits_flush=False, recovery_point=5, log_start_offset=deleted_to, segments=[Mock(base_offset=0)])
    log.apply_retention.return_value = None
    partition = Mock(log=log)
    replicas = Mock()
    replicas.partitions.return_value = [partition]

    async def apply() -> None:
        await Maintenance(Mock(), replicas, Mock(online=[]), Mock(), ManualClock()).apply_retention()

    asyncio.run(apply())
    assert partition.mark_dirty.called == is_synced


def test_records_deleted_on_request_and_many_appended_bytes_are_checkpointed_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash would bring deleted records back, and a start after it would read everything past the checkpoint."""
    throughput = ThroughputByTopic()
    replicas = Mock(throughput=throughput, start_moves=0)
    maintenance = Maintenance(Mock(), replicas, Mock(), Mock(), ManualClock())
    written: list[bool] = []

    async def write() -> None:
        written.append(True)

    monkeypatch.setattr(maintenance, "write_checkpoints", write)

    def look() -> int:
        asyncio.run(maintenance.write_checkpoints_early())
        return len(written)

    assert look() == 0
    replicas.start_moves = 1
    assert look() == 1
    assert look() == 1
    replicas.start_moves = 2
    assert look() == 2
    led, followed = throughput.held("led"), throughput.held("followed")
    led.produced_bytes = BYTES_PER_CHECKPOINT - 1
    assert look() == 2
    followed.replicated_in_bytes = 1
    throughput.released("followed")
    assert look() == 3
    assert look() == 3
