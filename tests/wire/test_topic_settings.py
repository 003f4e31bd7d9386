"""Settings of topics whose work nobody sees on the wire: when files are synced, and when they go."""

import time
from pathlib import Path
from typing import Final

from tests.support.eventually import eventually
from tests.support.stories import Teller, batch

from ottla.testing import Broker

CHECKPOINT: Final = "recovery-point-offset-checkpoint"


def recovery_points(directory: Path) -> dict[str, int]:
    lines = (directory / CHECKPOINT).read_text().splitlines()[2:] if (directory / CHECKPOINT).exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines}


def test_flush_messages_syncs_what_no_acknowledgement_has_synced(tmp_path: Path) -> None:
    config = {"log.initial.task.delay.ms": "0", "log.flush.offset.checkpoint.interval.ms": "50"}
    with Broker(directory=tmp_path, config=config) as broker:
        teller = Teller(broker.bootstrap)
        teller.create("counted", flush_before_ack="false", flush_messages="4")
        teller.create("left-alone", flush_before_ack="false")
        for name in ("left-alone", "counted"):
            teller.fill(name, batch(b"a", b"b"), batch(b"c", b"d"), batch(b"e"))
        eventually(lambda: recovery_points(tmp_path).get("counted") in (4, 5))
        assert recovery_points(tmp_path)["left-alone"] == 0


def test_files_of_deleted_segments_stay_as_long_as_they_are_told(tmp_path: Path) -> None:
    config = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "50"}
    with Broker(directory=tmp_path, config=config) as broker:
        teller = Teller(broker.bootstrap)
        for name, delay_ms in (("kept", "60000"), ("gone", "0")):
            teller.create(name, retention_ms="1", file_delete_delay_ms=delay_ms)
            teller.fill(name, batch(b"old", timestamp_ms=int(time.time() * 1000) - 10_000))

        def files(name: str) -> set[str]:
            return {path.name for path in (tmp_path / f"{name}-0").glob("00000000000000000000.*")}

        eventually(lambda: not files("gone"))
        eventually(lambda: "00000000000000000000.log.deleted" in files("kept"))
        assert "00000000000000000000.log" not in files("kept")
    with Broker(directory=tmp_path, config=config):
        assert not files("kept")
