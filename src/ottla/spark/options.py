"""Options of the source and the sink: Spark's names, checked before anything is read or written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from ottla.spark.errors import OptionError
from ottla.spark.offsets import EARLIEST, LATEST, Offsets

_READ: Final = (
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
)
_WRITE: Final = ("topic", "includeHeaders", "deliveryGuarantee")
_GUARANTEES: Final = ("exactly-once", "at-least-once")
_SPARK_OWN: Final = ("path", "checkpointLocation", "queryName")  # handed to every source and sink by Spark itself
_CLIENT_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_OURS_TO_SET: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets live in Spark's checkpoint",
    "kafka.enable.partition.eof": "the source depends on it",
}

ClientSettings = tuple[tuple[str, str], ...]
"""Settings handed through to the client library, without their prefix `kafka.`; hashable, to key a cache."""


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether a read has the column `headers`: all that its schema depends on. Raises OptionError."""
    given = _lower(options)
    _refuse_unknown(given, _READ)
    return _flag(given, "includeHeaders", default=False)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read. `starting` and `ending` are EARLIEST, LATEST, or offsets per topic and partition."""

    client: ClientSettings
    topics: tuple[str, ...]
    starting: Offsets | int
    ending: Offsets | int
    max_offsets_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "ReadOptions":
        """Raises OptionError, naming the option and what it should be."""
        given = _lower(options)
        _refuse_unknown(given, _READ)
        topics = tuple(dict.fromkeys(name.strip() for name in given.get("subscribe", "").split(",") if name.strip()))
        if not topics:
            raise OptionError("the option 'subscribe' names the topics to read, separated by commas; it is missing")
        if streaming and "endingoffsets" in given:
            raise OptionError("'endingOffsets' is for batch reads; a streaming query has no end")
        starting = _offsets(given, "startingOffsets", "latest" if streaming else "earliest", topics)
        ending = _offsets(given, "endingOffsets", "latest", topics)
        if not streaming and starting == LATEST:
            raise OptionError("'startingOffsets' cannot be 'latest' for a batch read: it would read nothing")
        if ending == EARLIEST or (isinstance(ending, dict) and EARLIEST in _values(ending)):
            raise OptionError("'endingOffsets' cannot be the earliest offset (-2): it would read nothing")
        return cls(
            client=_client_settings(given),
            topics=topics,
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
            min_partitions=_positive(given, "minPartitions") or 0,
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            include_headers=_flag(given, "includeHeaders", default=False),
            poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or 120_000,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write. `topic` None: each row says it in its column `topic`."""

    client: ClientSettings
    topic: str | None
    exactly_once: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "WriteOptions":
        """Raises OptionError, naming the option and what it should be."""
        given = _lower(options)
        _refuse_unknown(given, _WRITE)
        guarantee = given.get("deliveryguarantee", "exactly-once" if streaming else "at-least-once").lower()
        if guarantee not in _GUARANTEES:
            raise OptionError(f"'deliveryGuarantee' is {' or '.join(_GUARANTEES)}, not '{guarantee}'")
        exactly_once = guarantee == "exactly-once"
        if exactly_once and not streaming:
            raise OptionError(
                "a batch write cannot be exactly-once: nothing tells a repeated write from a new one. Write a stream "
                "(trigger availableNow), or set deliveryGuarantee to at-least-once"
            )
        client = _client_settings(given)
        if exactly_once and "transactional.id" in dict(client):
            raise OptionError("'kafka.transactional.id' cannot be set: each task has its own")
        return cls(client=client, topic=given.get("topic"), exactly_once=exactly_once)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's option names know no case, and arrive in whichever case Spark kept."""
    return {name.lower(): value for name, value in options.items()}


def _refuse_unknown(given: dict[str, str], known: tuple[str, ...]) -> None:
    names = {name.lower(): name for name in (*known, *_SPARK_OWN, _BOOTSTRAP)}
    for option in given:
        if option in names or option.startswith(_CLIENT_PREFIX):
            continue
        near = get_close_matches(option, names, n=1)
        hint = f"; did you mean '{names[near[0]]}'?" if near else f"; known are: {', '.join(names.values())}"
        raise OptionError(f"unknown option '{option}'{hint}")


def _client_settings(given: dict[str, str]) -> ClientSettings:
    if not given.get(_BOOTSTRAP):
        raise OptionError(f"the option '{_BOOTSTRAP}' (host:port, ...) is missing")
    for option, why in _OURS_TO_SET.items():
        if option in given:
            raise OptionError(f"'{option}' cannot be set: {why}")
    return tuple(
        sorted(
            (option.removeprefix(_CLIENT_PREFIX), value)
            for option, value in given.items()
            if option.startswith(_CLIENT_PREFIX)
        )
    )


def _positive(given: dict[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise OptionError(f"'{name}' must be a whole number above 0, it is '{text}'")
    return int(text)


def _flag(given: dict[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"'{name}' must be true or false, it is '{text}'")
    return text == "true"


def _values(offsets: Offsets) -> set[int]:
    return {offset for partitions in offsets.values() for offset in partitions.values()}


def _offsets(given: dict[str, str], name: str, default: str, topics: tuple[str, ...]) -> Offsets | int:
    """`earliest`, `latest`, or JSON: {"topic": {"0": 23, "1": -1}}, where -2 is earliest and -1 latest."""
    text = given.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    shape = f'\'{name}\' must be earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}; it is \'{text}\''
    try:
        parsed = json.loads(text)
        offsets = {
            topic: {int(number): offset for number, offset in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (ValueError, AttributeError):
        raise OptionError(shape) from None
    if not all(type(offset) is int and offset >= EARLIEST for offset in _values(offsets)):
        raise OptionError(shape)
    if set(offsets) != set(topics):
        raise OptionError(f"'{name}' is for the topics {sorted(offsets)}, but 'subscribe' names {sorted(topics)}")
    return offsets
