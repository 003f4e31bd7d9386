"""Runs with checkpoints as Spark writes them, without Spark."""

import json
from pathlib import Path
from typing import Final

from ottla.pipeline.run_store import STOPPED, FlowRecord, RunDirectory, RunRecord, run_directory

QUERY: Final = "6d1c6b1e-0d2f-4f49-9a86-6d4f1a0a0a10"
READ: Final = {"flights": {"0": 23}, "#": {"ids": {"flights": "0" * 32}}}


def make_run(
    home: Path, name: str, *, batches: tuple[int, int] | None = (3, 4), query: str = QUERY, spark: str = "4.3.0"
) -> RunDirectory:
    """A stopped run of `flight-delays` with a flow `delays`, and one that has never run.

    `batches` are the last micro-batches that were finished and begun; None: it has not begun.
    """
    run = run_directory(home, name)
    checkpoints = run.path / "checkpoints"
    checkpoints.mkdir(parents=True)
    if batches is not None:
        make_checkpoint(checkpoints / "delays", batches, query)
        (checkpoints / "delays.json").write_text("{}")
        (checkpoints / "delays.late.json").write_text('{"batch": 3, "rows": 2}')
        (checkpoints / "removed").mkdir()
        (checkpoints / "removed" / "metadata").write_text('{"id": "of a flow that is gone"}')
    flows = {
        flow: FlowRecord(["topic flights"], f"topic {flow}", "append", "1 second", str(checkpoints / flow), STOPPED)
        for flow in ("delays", "quiet")
    }
    run.write(
        RunRecord(
            name=name,
            job="flight-delays",
            job_file="/jobs/delays.py",
            fingerprint="of the file",
            bootstrap="127.0.0.1:9092",
            master="local[2]",
            pid=1,
            started_at=1.0,
            state=STOPPED,
            spark=spark,
            flows=flows,
        )
    )
    return run


def make_checkpoint(checkpoint: Path, batches: tuple[int, int], query: str = QUERY) -> None:
    """With state of `transformWithState`, whose metadata has absolute paths."""
    done, begun = batches
    for kind in ("offsets", "commits", "state/0/0", "state/0/_stateSchema/default", "state/0/_metadata/v2"):
        (checkpoint / kind).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    for number in range(begun + 1):
        (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(READ)}')
    for number in range(done + 1):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    (checkpoint / "state" / "0" / "0" / f"{begun}.zip").write_bytes(b"state")
    schema = checkpoint / "state" / "0" / "_stateSchema" / "default" / "0_abc"
    schema.write_text("a schema")
    metadata = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPySparkExec"},
        "stateStoreInfo": [{"storeName": "default", "stateSchemaFilePaths": [f"file:{schema}"]}],
    }
    file = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    file.write_text(f"v2\n{json.dumps(metadata)}")
    file.with_name(".0.crc").write_bytes(b"of the file before")
