"""A home with runs as `ottla pipeline run` leaves it, without Spark: a run, a replay of it, and a broken one."""

import json
from pathlib import Path
from typing import Final

from ottla.pipeline import progress
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FlowRecord, RunDirectory, RunRecord, run_directory

QUERY: Final = "0b2c7c9e-1111-4222-8333-123456789abc"
"""Spark's id of the query of the run's flow."""


def run_home(home: Path, letters: str = "shop.dead-letters", replayed: int = 6) -> RunDirectory:
    """Runs `shop`, `v2`, which replays it and has read `replayed` of its 10 records, and `broken`. Returns `shop`."""
    first = _run(home, "shop", 10, letters)
    _run(home, "v2", replayed, f"{letters}-v2", "shop")
    broken = run_directory(home, "broken")
    broken.path.mkdir(parents=True)
    (broken.path / "run.json").write_text("{")
    return first


def _run(home: Path, name: str, position: int, letters: str, replays: str | None = None) -> RunDirectory:
    directory = run_directory(home, name)
    suffix = "" if replays is None else f"-{name}"
    flows = {
        "copies": FlowRecord(["topic orders"], f"topic copies{suffix}", "append", "1 second", "", "stopped"),
        "orders.dead-letters": FlowRecord(["topic orders"], f"topic {letters}", "append", "1 second", "", "stopped"),
    }
    for flow, about in flows.items():
        checkpoint = directory.path / "checkpoints" / flow
        about.checkpoint = str(checkpoint)
        for kind in ("offsets", "commits"):
            (checkpoint / kind).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": QUERY if flow == "copies" else flow + name}))
        (checkpoint / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({"orders": {"0": position}}))
        (checkpoint / "commits" / "0").write_text("v1\n{}")
    record = RunRecord(name, "shop", "/shop.py", "f", "here:9092", "local[2]", 1, 1.0, "stopped", 2.0, flows=flows)
    record.replays, record.suffix = replays, suffix.removeprefix("-")
    directory.write(record)
    figures = Figures("copies", 5.0, position, rejected=0, late=2, state_rows=3, watermark="2026-01-01T00:00:00Z")
    progress.append(directory.progress, figures)
    return directory
