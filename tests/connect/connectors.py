"""Connectors for tests of the runtime."""

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.connect.api import Position, Settings, Sink, SinkRecord, Source, SourceRecord, setting

COLLECTED: Final[list[SinkRecord]] = []


class NumbersSettings(Settings):
    topic: str = setting("Where the numbers go.", importance="high")
    count: int = setting("How many.", 10, ge=0)


class Numbers(Source[NumbersSettings]):
    """Counts from 0."""

    def read(self, position: Position | None) -> Iterator[SourceRecord | None]:
        for number in range(position["number"] if position else 0, self.settings.count):
            yield SourceRecord(topic=self.settings.topic, value=number, position={"number": number + 1})


class Collect(Sink[Settings]):
    """Keeps records in `COLLECTED`."""

    def write(self, batch: Sequence[SinkRecord]) -> None:
        COLLECTED.extend(batch)
