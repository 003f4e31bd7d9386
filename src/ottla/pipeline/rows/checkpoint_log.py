"""The micro-batches in a checkpoint of Spark: their end offsets, their watermark, and whether they are done.

    offsets/7   v1                              a line, then
                {"batchWatermarkMs": ...}       what goes for the micro-batch as a whole
                {"flights": {"0": 23}}          for each source, in Spark's order, where it ends; - for none
    commits/7   exists once it is done

Files of micro-batches long done are deleted (`spark.sql.streaming.minBatchesToRetain`, 100).
Source: OffsetSeqLog and CommitLog of Spark 4.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.pipeline.errors import PipelineError

_VERSION: Final = "v1"
_NOTHING: Final = "-"


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch as it was planned. `ends` are the sources' offsets as JSON objects, None where there are none."""

    watermark_ms: int
    ends: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CheckpointLog:
    """The logs below one checkpoint location."""

    location: Path

    def exists(self) -> bool:
        """Whether a query has ever begun here."""
        return (self.location / "metadata").exists()

    def query_id(self) -> str:
        """The id of this checkpoint's query. Raises PipelineError if there is none yet."""
        file = self.location / "metadata"
        try:
            found: str = json.loads(file.read_text())["id"]
        except (OSError, ValueError, KeyError) as error:
            raise PipelineError(f"{file} cannot be read: {error}") from error
        return found

    def last_done(self) -> int:
        """The number of the last micro-batch that is done; -1 if none is."""
        return max(self._numbers("commits"), default=-1)

    def last_begun(self) -> int:
        """The number of the last micro-batch that was begun, done or not; -1 if none was."""
        return max(self._numbers("offsets"), default=-1)

    def first_known(self) -> int:
        """The number of the first micro-batch that the log still has; 0 if it has none."""
        return min(self._numbers("offsets"), default=0)

    def batch(self, number: int) -> Batch:
        """Raises PipelineError if the log no longer has it, or in an unknown format."""
        file = self.location / "offsets" / str(number)
        try:
            version, metadata, *sources = file.read_text().splitlines()
            if version != _VERSION:
                raise PipelineError(f"{file} is of version {version!r}, only {_VERSION} is known")
            ends = tuple(None if source == _NOTHING else json.loads(source) for source in sources)
            return Batch(int(json.loads(metadata)["batchWatermarkMs"]), ends)
        except (OSError, ValueError, KeyError) as error:
            raise PipelineError(f"{file} cannot be read: {error}") from error

    def _numbers(self, log: str) -> list[int]:
        directory = self.location / log
        if not directory.is_dir():
            return []
        return [int(file.name) for file in directory.iterdir() if file.name.isdigit()]
