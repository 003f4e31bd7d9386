"""Late rows as corrections: merged into what the flow has written before.

The flow is built once more over the records of a micro-batch, as a batch. Spark has dropped those of its groups whose
window had ended by the watermark of the micro-batch before, so exactly these are merged into the rows of the same
groups. The flow itself does not write them again: it has forgotten a window that has ended, and its last row of it came
with the micro-batch before at the latest, which is done.

    micro-batch N     08:00 UA 1 row    11:00 UA 3 rows       built anew from its records
    watermark 10:00   late              not late: written by the flow
    output            08:00 UA 10 -> 11                       and, in the same step: late-<query id> has N
"""

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.corrections import Closing, Corrections
from ottla.pipeline.rows.late import Follower, LateBatch
from ottla.pipeline.sinks.base import Correctable
from ottla.pipeline.sinks.batches import MicroBatch


@dataclass(slots=True, kw_only=True)
class CorrectedRows(Follower):
    """Merges late rows into the flow's own sink."""

    figure: ClassVar[str] = "corrected"
    sink: Correctable
    corrections: Corrections

    def write_late(self, late: LateBatch) -> int:
        """Merge the late groups of a micro-batch; how many rows of the output that corrects."""
        rows = late_groups(self.rebuild(late.load), self.corrections.closes, late.watermark_ms)
        return self.sink.correct(MicroBatch(rows, late.query_id, late.number), self.corrections, self.context)


def late_groups(rows: DataFrame, closes: Closing, watermark_ms: int) -> DataFrame:
    """Those of the aggregated rows whose window has ended by the watermark."""
    return rows.where(_end(closes) <= F.timestamp_millis(F.lit(watermark_ms)))


def _end(closes: Closing) -> Column:
    column = F.col(f"`{closes.column}`")
    end = column if closes.field is None else column[closes.field]
    return F.timestamp_micros(F.unix_micros(end) + F.lit(closes.after_us)) if closes.after_us else end
