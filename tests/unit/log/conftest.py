from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.log.driver import TP, Disk, LogDriver, SetClock

from ottla.log.partition_log import PartitionLog


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def driver(tmp_path: Path, disk: Disk, clock: SetClock) -> LogDriver:
    return LogDriver(tmp_path / str(TP), disk, clock)


@pytest.fixture
def log(driver: LogDriver) -> Iterator[PartitionLog]:
    log = driver.open(clean=True)
    yield log
    log.release()
