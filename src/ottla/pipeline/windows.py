"""Closing the windows and sessions of a query whose input has ended.

A window comes out when the watermark has passed its end, which takes later rows. Where none come, the checkpoint of the
stopped query gets one more planned micro-batch, as if it had been interrupted: without records, and with a later
watermark. Spark does that micro-batch when the query starts again.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final

END_OF_TIME_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, the latest that Spark's timestamps are sure to show."""

_DAY_MS: Final = 86_400_000
_NEXT_WATERMARK: Final = "nextBatchWatermarkMs"
_WATERMARK: Final = "batchWatermarkMs"
_TIMESTAMP: Final = "batchTimestampMs"


def close_windows(checkpoint: Path, until_ms: int = END_OF_TIME_MS) -> bool:
    """Have a stopped query continue with its watermark at `until_ms`, in milliseconds since 1970. False, and nothing is
    changed, if it has no watermark, one as late as that, nothing read, or a micro-batch to finish first.

    Raises OSError.
    """
    offsets, commits = _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")
    if commits is None or offsets != commits:
        return False
    commit = json.loads((checkpoint / "commits" / str(commits)).read_text(encoding="utf-8").partition("\n")[2])
    if not 0 < commit.get(_NEXT_WATERMARK, 0) < until_ms:
        return False
    version, metadata, *sources = (checkpoint / "offsets" / str(commits)).read_text(encoding="utf-8").split("\n")
    batch: dict[str, Any] = json.loads(metadata)
    batch |= {_WATERMARK: until_ms, _TIMESTAMP: time.time_ns() // 1_000_000}
    planned = checkpoint / "offsets" / str(commits + 1)
    fresh = planned.with_name(f".{planned.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write("\n".join((version, json.dumps(batch), *sources)))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(planned)
    return True


def watermark_ahead_ms(checkpoint: Path, now_ms: int) -> int | None:
    """The watermark with which the query goes on, in milliseconds since 1970, if it is more than a day ahead of the
    clock: rows of now are late then, for as long as that. None if it is not, or cannot be known."""
    try:
        newest = _newest(checkpoint / "offsets")
        metadata = (checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8").split("\n")[1]
        watermark_ms = int(json.loads(metadata).get(_WATERMARK, 0))
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return None
    return watermark_ms if watermark_ms > now_ms + _DAY_MS else None


def _newest(log: Path) -> int | None:
    return max((int(file.name) for file in log.glob("[0-9]*") if file.name.isdigit()), default=None)
