"""Segments of their full length at once (`preallocate`), and the zeros that a crash leaves behind their batches."""

import logging

import pytest
from tests.unit.log.driver import LogDriver, offsets, read_all

from ottla.cli.log.verify import Verification, segments_of
from ottla.ids import Offset
from ottla.log.partition_log import PartitionLog

SEGMENT = 4000


def sizes(driver: LogDriver) -> dict[int, int]:
    """The length of each segment's file, by base offset."""
    return {int(path.stem): path.stat().st_size for path in sorted(driver.directory.glob("*.log"))}


def opened(driver: LogDriver) -> PartitionLog:
    return driver.open(clean=True, segment_bytes=SEGMENT, preallocate=True)


def test_a_segment_is_long_while_it_grows(driver: LogDriver) -> None:
    log = opened(driver)
    assert sizes(driver) == {0: SEGMENT}
    driver.fill(log, 30, count=1)
    closed, (last, length) = list(sizes(driver).items())[:-1], list(sizes(driver).items())[-1]
    assert len(closed) >= 1
    assert [size for _, size in closed] == [segment.size for segment in log.segments[:-1]]
    assert length == SEGMENT > log.segments[-1].size > 0
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert offsets(read_all(log)) == list(range(30))
    log.close()
    assert sizes(driver)[last] == log.segments[-1].size


def test_a_truncated_segment_ends_with_its_batches(driver: LogDriver) -> None:
    log = opened(driver)
    driver.fill(log, 10, count=1)
    log.truncate_to(Offset(5))
    assert sizes(driver) == {0: log.segments[0].size}
    log.truncate_fully_and_start_at(Offset(7))
    assert sizes(driver) == {7: SEGMENT}
    log.release()


@pytest.mark.parametrize("synced", [False, True])
def test_a_crash_leaves_no_zeros(driver: LogDriver, synced: bool, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(driver)
    driver.fill(log, 40, count=1)
    if synced:
        log.flush()
    segments = [(segment.base_offset, segment.size) for segment in log.segments]
    with caplog.at_level(logging.WARNING):
        again = driver.crash(log)
    assert (
        [(segment.base_offset, segment.size) for segment in again.segments] == segments == list(sizes(driver).items())
    )
    assert not caplog.records, "nothing was lost"
    driver.fill(again, 5, count=1)
    assert offsets(read_all(again)) == list(range(45))
    again.release()


def test_an_empty_one_too(driver: LogDriver) -> None:
    again = driver.crash(opened(driver))
    assert sizes(driver) == {0: 0}
    driver.fill(again, 3, count=1)
    assert offsets(read_all(again)) == [0, 1, 2]
    again.release()


def test_a_closed_segment_whose_cut_was_lost(driver: LogDriver) -> None:
    """A power failure may bring back the length that a segment had before it was closed."""
    log = opened(driver)
    driver.fill(log, 40, count=1)
    assert len(log.segments) > 1
    with (driver.directory / "00000000000000000000.log").open("r+b") as file:
        file.truncate(SEGMENT + 100)
    again = driver.crash(log, recovery_point=0)
    assert offsets(read_all(again)) == list(range(40))
    again.release()


def test_zeros_where_something_was_synced_are_damage(driver: LogDriver, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(driver)
    driver.fill(log, 5, count=1)
    log.flush()
    batch = log.segments[0].size // 5
    with (driver.directory / "00000000000000000000.log").open("r+b") as file:
        file.seek(3 * batch)
        file.write(bytes(2 * batch))
    with caplog.at_level(logging.ERROR):
        again = driver.crash(log)
    assert "below the recovery point" in caplog.text
    assert again.log_end_offset >= 5
    again.release()


def test_zeros_that_end_a_batch_belong_to_it(driver: LogDriver) -> None:
    log = opened(driver)
    driver.append(log, 1, value_bytes=0)
    zeros = bytearray(driver.batch(1, value_bytes=200))  # the value of a first record is zeros
    log.append_as_leader(zeros, 0)  # type: ignore[arg-type] # any epoch
    again = driver.crash(log)
    assert offsets(read_all(again)) == [0, 1]
    again.release()


def test_the_command_that_verifies_finds_nothing_wrong(driver: LogDriver) -> None:
    log = opened(driver)
    driver.fill(log, 5, count=1)
    log.release()
    verification = Verification()
    for segment in segments_of([driver.directory]):
        verification.check_segment(segment, lambda: None)
    assert verification.problems == []
