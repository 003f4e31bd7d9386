"""Connectors for tests of the runtime."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Producer

from ottla.connect.api import (
    BadRecord,
    ConfigError,
    Context,
    Position,
    Retriable,
    SecretStr,
    Settings,
    Sink,
    SinkRecord,
    Source,
    SourceRecord,
    TopicPartition,
    setting,
)

COLLECTED: Final[list[SinkRecord]] = []


class NumbersSettings(Settings):
    topic: str = setting("Where the numbers go.", importance="high")
    count: int = setting("How many.", 10, ge=0)
    pause_ms: float = setting("Between two.", 0)


class Numbers(Source[NumbersSettings]):
    """Counts from 0."""

    version = "1.0"

    def read(self, position: Position | None) -> Iterator[SourceRecord | None]:
        for number in range(position["number"] if position else 0, self.settings.count):
            yield SourceRecord(topic=self.settings.topic, value=number, position={"number": number + 1})
            if self.settings.pause_ms:
                self.context.sleep(self.settings.pause_ms / 1000)


class Collect(Sink[Settings]):
    """Keeps records in `COLLECTED`."""

    def write(self, batch: Sequence[SinkRecord]) -> None:
        COLLECTED.extend(batch)


class EchoSettings(Settings):
    to: str = setting("A topic.")


class Echo(Sink[EchoSettings]):
    """Writes values to another topic."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._producer = Producer(dict(self.context.client))

    def write(self, batch: Sequence[SinkRecord]) -> None:
        for record in batch:
            self._producer.produce(self.settings.to, str(record.value))
        self._producer.flush(10)


class FragileSettings(Settings):
    password: SecretStr = setting("Shown nowhere.", SecretStr(""))
    fail: str = setting("What to raise: config, later, bug or nothing.", "nothing")


class Fragile(Sink[FragileSettings]):
    """Refuses records whose value has `bad`; fails as told."""

    attempts = 0

    @classmethod
    def check(cls, settings: FragileSettings, context: Context) -> None:
        if settings.fail == "config":
            raise ConfigError(f"the password {settings.password.get_secret_value()} is wrong", "password")

    def write(self, batch: Sequence[SinkRecord]) -> None:
        if self.settings.fail == "bug":
            raise RuntimeError(f"no idea what {self.settings.password.get_secret_value()} is for")
        if self.settings.fail == "later" and Fragile.attempts < 3:
            Fragile.attempts += 1
            raise Retriable("the target is away")
        for record in batch:
            if isinstance(record.value, dict) and "bad" in record.value:
                raise BadRecord("it is bad", record)
        COLLECTED.extend(batch)


class TableSettings(Settings):
    database: str = setting("A file of SQLite.")


class Table(Sink[TableSettings]):
    """Appends values to a table, with the offsets in the same transaction."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._connection = sqlite3.connect(self.settings.database)
        self._connection.execute("create table if not exists taken (value int)")
        self._connection.execute("create table if not exists places (topic, part, next, primary key (topic, part))")

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {TopicPartition(t, p): n for t, p, n in self._connection.execute("select * from places")}

    def alter_offsets(self, offsets: Mapping[TopicPartition, int | None] | None) -> None:
        with self._connection:
            if offsets is None:
                self._connection.execute("delete from places")
            for place, offset in (offsets or {}).items():
                self._connection.execute("delete from places where topic = ? and part = ?", place)
                if offset is not None:
                    self._connection.execute("insert into places values (?, ?, ?)", (*place, offset))

    def write(self, batch: Sequence[SinkRecord]) -> None:
        with self._connection:
            for record in batch:
                self._connection.execute("insert into taken values (?)", (record.value,))
                self._connection.execute("replace into places values (?, ?, ?)", (*record.origin, record.offset + 1))


class Kept(Table):
    """As `Table`, but nobody can change where it is."""

    alter_offsets = Sink.alter_offsets
