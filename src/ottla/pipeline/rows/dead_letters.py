"""The headers of a dead letter, which are added to a record that was rejected.

Key, value and headers of the record stay as they were; what is new are headers whose names begin with
`ottla.dead-letter.`, with values in UTF-8. A record that has been rejected before has those of then too: the last of a
name counts, as everywhere in Kafka.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "ottla.dead-letter."
REASON: Final = f"{PREFIX}reason"
"""Why, for people: `malformed JSON`, `missing required field 'carrier'`, `check failed: has carrier`."""
SOURCE_TOPIC: Final = f"{PREFIX}topic"
SOURCE_PARTITION: Final = f"{PREFIX}partition"
SOURCE_OFFSET: Final = f"{PREFIX}offset"
SOURCE_TIMESTAMP: Final = f"{PREFIX}timestamp"
"""The record's, in milliseconds since 1970."""
JOB: Final = f"{PREFIX}job"
VIEW: Final = f"{PREFIX}view"
"""The view or flow whose function rejected it."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What the headers of a dead letter say. Where a row did not come from a topic, there is no source to name."""

    reason: str
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    job: str | None
    view: str | None

    @classmethod
    def read(cls, headers: Iterable[Header] | None) -> "DeadLetter | None":
        """None if the record is no dead letter: it has no reason. Raises ValueError for numbers that are none."""
        found = {name: (value or b"").decode(errors="replace") for name, value in headers or ()}
        if REASON not in found:
            return None

        def number(name: str) -> int | None:
            return None if name not in found else int(found[name])

        return cls(
            reason=found[REASON],
            topic=found.get(SOURCE_TOPIC),
            partition=number(SOURCE_PARTITION),
            offset=number(SOURCE_OFFSET),
            timestamp_ms=number(SOURCE_TIMESTAMP),
            job=found.get(JOB),
            view=found.get(VIEW),
        )


def original_headers(headers: Iterable[Header] | None) -> list[Header]:
    """The headers that the record had before it was rejected, in their order."""
    return [(name, value) for name, value in headers or () if not name.startswith(PREFIX)]
