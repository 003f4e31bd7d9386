"""What a task counts of its work: written by its thread, read by those of `metrics.listeners`."""

import time

from ottla.metrics.window import Window


class ErrorFigures:
    """Trouble with records, by Kafka's names (KIP-298)."""

    __slots__ = ("dead_letter_failures", "dead_letters", "failures", "last_at_ms", "logged", "retries", "skipped")

    def __init__(self) -> None:
        self.failures = 0
        """Records that were refused."""
        self.skipped = 0
        """Those of them that were skipped (`errors.tolerance=all`)."""
        self.logged = 0
        self.retries = 0
        """Operations that were tried again."""
        self.dead_letters = 0
        """Records handed to the dead-letter topic."""
        self.dead_letter_failures = 0
        self.last_at_ms = 0

    def refused(self, *, is_skipped: bool, is_logged: bool) -> None:
        """Count a record that was refused."""
        self.failures += 1
        self.skipped += is_skipped
        self.logged += is_logged
        self.last_at_ms = time.time_ns() // 1_000_000


class TaskFigures:
    """What one task has done since it was started.

    records_in: polled from a source, or consumed for a sink; records_out: sent to topics, or written to the target.
    A source's records count as written when they are committed: `writes.total`.
    """

    __slots__ = ("batches", "commit_failures", "commits", "errors", "partitions", "puts", "reads", "records_in",
                 "records_out", "writes")  # fmt: skip

    def __init__(self) -> None:
        now = time.monotonic()
        self.records_in = 0
        self.records_out = 0
        self.reads = Window(now)
        self.writes = Window(now)
        self.batches = Window(now)
        """Records of each transaction, or of each batch for a target."""
        self.puts = Window(now)
        """Seconds in which the target took a batch."""
        self.commits = Window(now)
        """Seconds that each commit took."""
        self.commit_failures = 0
        self.partitions = 0
        """Partitions that a sink reads now."""
        self.errors = ErrorFigures()

    @property
    def active(self) -> int:
        """Records of a source that are not committed yet."""
        return self.records_in - int(self.reads.total)

    def read(self, count: int) -> None:
        """Records were consumed for a sink."""
        self.records_in += count
        self.reads.add(count, time.monotonic())

    def put(self, count: int, seconds: float) -> None:
        """The target has taken a batch."""
        now = time.monotonic()
        self.records_out += count
        self.writes.add(count, now)
        self.batches.add(count, now)
        self.puts.add(seconds, now)

    def committed(self, seconds: float) -> None:
        """A source's transaction, or the offsets of a sink, are committed."""
        self.commits.add(seconds, time.monotonic())

    def aborted(self) -> None:
        """What a source has sent since its last commit is given up, and comes again."""
        self.records_out = int(self.writes.total)

    def delivered(self) -> None:
        """Count what a source has polled and written since its last commit."""
        now = time.monotonic()
        written = self.records_out - int(self.writes.total)
        self.reads.add(self.active, now)
        self.writes.add(written, now)
        if written:
            self.batches.add(written, now)
